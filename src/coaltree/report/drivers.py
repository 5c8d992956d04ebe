"""What drives each outcome, and what the tree of outcomes says, in words with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scipy.special import ndtr, ndtri

from coaltree.report.blocks import table, text
from coaltree.report.page import Block
from coaltree.rows import Rows

REFERENCE = 0.1  # the risk from which effects are told
_SHORT = 3  # regressors named for a node


def driver_blocks(drivers: Rows, level: float) -> list[Block]:
    """One sentence for each outcome, and the coefficients behind it."""
    return [
        text(
            f"Effects are told for a subject with a risk of {REFERENCE:.0%}: what it becomes with one more unit of the "
            "regressor, other regressors unchanged. A unit is what each regressor says: one standard deviation of a "
            f"factor, one record of a single code against none. In brackets {level:.0%} posterior intervals; a "
            "direction is told only if the interval of the coefficient leaves out 0. They show what goes with an "
            "outcome in these records, not what causes it."
        ),
        table(driver_sentences(drivers), "What goes with a higher and a lower risk of each outcome"),
        table(coefficient_lines(drivers), "Regressors that weigh most, fitted to all training subjects: coefficients"),
    ]


def risk_after(coefficient: float, reference: float = REFERENCE, family: str = "probit") -> float:
    """Risk of a subject with the reference risk after one more unit: by Φ, or by a rate times exp(coefficient)."""
    if family == "poisson":
        from math import exp, expm1, log1p

        return -expm1(log1p(-reference) * exp(coefficient))
    return float(ndtr(ndtri(reference) + coefficient))


def short_name(regressor: str) -> str:
    """Return the name of a regressor; of a factor its number, for its codes are in a separate table."""
    return regressor.partition(":")[0] if regressor.startswith("factor ") else regressor


def effect(row: Mapping[str, Any]) -> str:
    """Return the effect of a regressor on the reference risk, with its interval."""
    family = str(row.get("family", "probit"))
    middle, low, high = (risk_after(float(row[key]), family=family) for key in ("coefficient", "low", "high"))
    return f"{short_name(str(row['regressor']))} (per {row['per']}): {middle:.1%} ({low:.1%} to {high:.1%})"


def driver_sentences(drivers: Rows) -> list[dict[str, str]]:
    """One row per outcome: what raises its risk, what lowers it, and how many of its regressors are uncertain."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in drivers:
        found.setdefault(str(row["outcome"]), []).append(row)
    lines = []
    for outcome, rows in found.items():
        up = [effect(row) for row in rows if float(row["low"]) > 0]
        down = [effect(row) for row in rows if float(row["high"]) < 0]
        unsure = len(rows) - len(up) - len(down)
        lines.append(
            {
                "outcome": outcome,
                "higher with": "; ".join(up) or "none whose direction is sure",
                "lower with": "; ".join(down) or "none whose direction is sure",
                "direction not sure": f"{unsure} of {len(rows)}",
            }
        )
    return lines


def coefficient_lines(drivers: Rows) -> list[dict[str, str]]:
    """One row per outcome with its coefficients and their intervals."""
    lines: dict[str, list[str]] = {}
    for row in drivers:
        told = (
            f"{short_name(str(row['regressor']))}: {row['coefficient']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})"
        )
        lines.setdefault(str(row["outcome"]), []).append(told)
    return [{"outcome": outcome, "regressors": "; ".join(texts)} for outcome, texts in lines.items()]


def node_blocks(nodes: Sequence[Mapping[str, Any]], level: float, chosen: int | None = None) -> list[Block]:
    """Return the models of the inner nodes of the tree of outcomes, with the supports of their clades."""
    if not nodes:
        return []
    rows = []
    for row in nodes:
        drivers = [
            f"{short_name(str(row[f'regressor {k + 1}']))}: {row[f'coefficient {k + 1}']:+.2f} "
            f"({row[f'low {k + 1}']:+.2f} to {row[f'high {k + 1}']:+.2f})"
            for k in range(_SHORT)
            if row.get(f"regressor {k + 1}")
        ]
        rows.append(
            {
                "node": f"{row['node']}{', chosen for cost' if row['node'] == chosen else ''}",
                "outcomes": row["outcomes"],
                "expected overlap": between(row, "overlap"),
                "exact support": between(row, "support"),
                "regressors": "; ".join(drivers),
            }
        )
    return [
        text(
            "Every inner node has a model of its own, a weighted mean of those of its outcomes: a risk of that group. "
            "Expected overlap says how much of the group is found together in the draws of the tree, exact "
            "support how often it is a clade to the last outcome; in brackets 95% intervals for the chains' own error. "
            f"Coefficients have {level:.0%} posterior intervals, given this tree."
        ),
        table(rows, "Models of the nodes, from the largest group to the smallest"),
    ]


def between(row: Mapping[str, Any], what: str) -> str:
    """Return a share with its interval."""
    return f"{row[what]:.2f} ({row[f'{what} low']:.2f} to {row[f'{what} high']:.2f})"
