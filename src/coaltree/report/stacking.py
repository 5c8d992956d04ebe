"""Blocks of the regression's report: which features matter, effects that are not linear, what new rows must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree.regression.stacking import Stack
from coaltree.report.blocks import code, table, text
from coaltree.report.page import Block

MOST_FEATURES = 25  # in the table of those that matter


def feature_rows(draws: Floats, sure: Bools, features: Sequence[str], level: float) -> list[dict[str, Any]]:
    """Which of many features matter: their effects over all outcomes, largest first; draws (S, P, K) per deviation."""
    size = np.sqrt(np.mean(draws**2, axis=1))  # of every draw, over outcomes
    low, high = np.quantile(size, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    mean, n_sure = size.mean(axis=0), sure.sum(axis=0)
    return [
        {
            "feature": features[k],
            "size of its effects": float(mean[k]),
            "low": float(low[k]),
            "high": float(high[k]),
            "outcomes with a sure sign": int(n_sure[k]),
        }
        for k in np.argsort(-mean, kind="stable")[:MOST_FEATURES]
    ]


def stack_blocks(stack: Stack, outcomes: tuple[str, ...]) -> list[Block]:
    """How much of the risk is linear, and which model knows it."""
    total = {name: float(np.nansum(values)) for name, values in stack.densities.items()}
    gain = total["stack"] - total["rates"]
    linear = (total["linear"] - total["rates"]) / gain if gain > 0 else float("nan")
    used = (
        "Predictions are the stack's: rows left out are predicted better by it than by the linear model."
        if stack.chosen
        else "Predictions are the linear model's: rows left out are predicted no better by the stack."
    )
    names = {
        "linear": "coalescent probit, linear",
        "ridge": "ridge",
        "forest": "one forest for all",
        "stack": "the stack over these",
    }
    rows = [
        {"model": names[name], "gain of log density, all outcomes": total[name] - total["rates"]}
        for name in ("linear", "ridge", "forest", "stack")
    ]
    shares = [
        {"outcome": outcome, "linear": float(share), "gain": float(top - rate)}
        for outcome, share, top, rate in zip(
            outcomes, stack.linear_share, stack.densities["stack"], stack.densities["rates"], strict=True
        )
        if share == share
    ]
    known = f"{min(max(linear, 0.0), 1.0):.0%} of what can be predicted is linear. " if linear == linear else ""
    return [
        text(
            f"{known}A forest, ridge regressions and the linear model predicted rows that they had not seen; a second "
            f"coalescent probit learned how much each is worth. {used} Coefficients, tree and composite outcomes on "
            "this page are those of the linear model."
        ),
        table(
            rows,
            "Log density of rows left out, above that of the rates alone",
            formats={"gain of log density, all outcomes": "+,.1f"},
        ),
        table(
            shares,
            "The part of each outcome's gain that is linear",
            formats={"linear": ".0%", "gain": "+,.1f"},
        ),
    ]


def need_blocks(needs: Sequence[Mapping[str, str]]) -> list[Block]:
    """What a table of new rows must hold."""
    return [
        text("The model is in model.npz. It predicts the rows of a table with these columns, in any order:"),
        code("coaltree regress predict model.npz new.csv --out predicted.csv"),
        table(list(needs), "What the model needs"),
    ]
