"""CoalescentProbit on columns as they come, linear and with features="auto", against its peers.

python -m benchmarks.raw --data FOLDER --mulan FOLDER --only emotions birds --held 1

FOLDER holds yeast.npz, medical.npz, birds_train.npz, birds_test.npz; the other one Mulan's emotions, enron and scene as
ARFF with their XML. Rows are cut into three folds that share out every outcome's events; `--held` of them are predicted
from the others. Finished fits are kept in --keep, so that an interrupted run goes on; the page goes to --out.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np

import coaltree as ct
from benchmarks.regression import REAL
from benchmarks.regression import load as load_npz
from coaltree.estimators.probit import CoalescentProbit
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import Comparison
from coaltree.regression.folds import stratified_folds
from coaltree.regression.table import Table

AUTO, LINEAR = "coalescent, auto", "coalescent, linear"
PEERS = ("wide_ridge", "multi_forest", "boosting", "classifier_chain", "ridge_stack")
MULAN = {"emotions": ("emotions",), "enron": ("enron",), "scene": ("scene-train", "scene-test")}
FEWEST_EVENTS = 5
N_FOLDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mulan", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=[*REAL, *MULAN])
    parser.add_argument("--held", type=int, default=N_FOLDS)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--burn-in", type=int, default=200)
    parser.add_argument("--keep", type=Path, default=Path("/tmp/coaltree-raw"))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    page = [
        "# CoalescentProbit on raw columns\n",
        f"`python -m benchmarks.raw`: coaltree {ct.__version__}, one chain of {options.iterations} iterations, "
        f"{options.burn_in} of them burn-in; {options.held} of {N_FOLDS} folds held out. Differences are ours with "
        'features="auto" minus theirs, with the standard error of a paired bootstrap of the rows. Log loss is the mean '
        "over outcomes. Seconds are CPU time of the fits, one thread; the linear model is a part of the first. Sets "
        "that are not listed here were not run at this size.\n",
    ]
    gaps: dict[str, list[float]] = {}
    for name in options.only:
        found = run(name, options)
        page += [describe(name, found), table(found, gaps)]
        options.out.write_text("\n".join([*page, overall(gaps)]), encoding="utf-8")
    print("\n".join([*page, overall(gaps)]))


def load(name: str, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    if name in REAL:
        X, Y, _ = load_npz(name, options.data)
        return X, Y
    tables = [read_arff(options.mulan / f"{part}.arff") for part in MULAN[name]]
    labels = {element.attrib["name"] for element in ET.parse(options.mulan / f"{name}.xml").iter() if element.attrib}
    names, rows = tables[0][0], np.concatenate([rows for _, rows in tables])
    outcome = np.array([name in labels for name in names])
    Y = rows[:, outcome]
    kept = np.minimum(Y.sum(axis=0), len(Y) - Y.sum(axis=0)) >= FEWEST_EVENTS
    return rows[:, ~outcome], Y[:, kept]


def read_arff(path: Path) -> tuple[list[str], np.ndarray]:
    """Names and numbers of an ARFF file, dense or sparse, of numbers and 0/1 levels."""
    names: list[str] = []
    rows: list[np.ndarray] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        if match := re.match(r"@attribute\s+('[^']*'|\"[^\"]*\"|\S+)", text, re.IGNORECASE):
            names.append(match[1].strip("'\""))
        elif text and text[0] not in "%@":
            row = np.zeros(len(names))
            if text[0] == "{":
                for cell in filter(None, text[1:-1].split(",")):
                    position, value = cell.split()
                    row[int(position)] = float(value)
            else:
                row[:] = [float(cell) for cell in text.split(",")]
            rows.append(row)
    return names, np.array(rows)


def models(options: argparse.Namespace) -> dict[str, Any]:
    ours = {"n_iter": options.iterations, "burn_in": options.burn_in, "n_chains": 1, "random_state": 0}
    found = {AUTO: CoalescentProbit(**ours, features="auto"), LINEAR: CoalescentProbit(**ours)}
    return found | {name: BASELINES[name]() for name in PEERS}


def run(name: str, options: argparse.Namespace) -> Comparison:
    """Predictions of the rows held out, by every method."""
    X, Y = load(name, options)
    folds = stratified_folds(Y, N_FOLDS, 0)
    rows = folds < options.held
    chosen = models(options)
    shape = (len(chosen), *Y.shape)
    probability, seconds = np.full(shape, np.nan), np.full((len(chosen), options.held), np.nan)
    for fold in range(options.held):
        train, test = folds != fold, folds == fold
        for m, (method, model) in enumerate(chosen.items()):
            file = options.keep / f"{name}-{fold}-{method}-{options.iterations}-{options.burn_in}.npz"
            if not file.exists():
                began = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    p = model.fit(X[train], Y[train]).predict_proba(X[test])
                used = time.process_time() - began
                extra = {}
                if method == AUTO:
                    # Its linear part is the linear model: no need to fit that again.
                    linear = model.fit_.predict_proba(X[test])
                    densities = {key: float(np.nansum(values)) for key, values in model.stack_.densities.items()}
                    extra = {"linear": linear, "densities": np.array(json.dumps(densities))}
                options.keep.mkdir(parents=True, exist_ok=True)
                np.savez(file, p=p, seconds=used, **extra)
                print(f"{name} fold {fold} {method}: {used:.0f} s", flush=True)
            kept = np.load(file, allow_pickle=False)
            probability[m, test], seconds[m, fold] = kept["p"], kept["seconds"]
            if method == AUTO:
                other = options.keep / file.name.replace(AUTO, LINEAR)
                if not other.exists():
                    np.savez(other, p=kept["linear"], seconds=np.nan)
    outcomes = tuple(str(j) for j in range(Y.shape[1]))
    p = probability[:, rows]
    return Comparison(tuple(chosen), outcomes, Y[rows], folds[rows], p, p, seconds, n_resamples=300)


def describe(name: str, found: Comparison) -> str:
    return f"## {name}\n\n{len(found.Y):,} rows predicted, {len(found.outcomes)} outcomes.\n"


def losses(found: Comparison) -> np.ndarray:
    """Log loss of every method and row, mean over outcomes, (M, N)."""
    p = np.clip(found.probability, 1e-12, 1 - 1e-12)
    return -np.log(np.where(found.Y == 1, p, 1 - p)).mean(axis=2)


def table(found: Comparison, gaps: dict[str, list[float]]) -> str:
    loss, rows = losses(found), Table()
    resampled = np.nanmean(found.resampled_auroc, axis=1)
    for m, method in enumerate(found.methods):
        difference = loss[0] - loss[m]
        area = float(np.nanmean(found.auroc[0]) - np.nanmean(found.auroc[m]))
        rows.append(
            {
                "method": method,
                "AUC": float(np.nanmean(found.auroc[m])),
                "difference of AUC": area,
                "s.e.": float(np.std(resampled[0] - resampled[m])),
                "log loss": float(loss[m].mean()),
                "difference of log loss": float(difference.mean()),
                "s.e. of it": float(difference.std() / len(difference) ** 0.5),
                "seconds": "" if np.isnan(found.seconds[m]).all() else f"{np.nansum(found.seconds[m]):.0f}",
            }
        )
        gaps.setdefault(f"{method}", []).append(area)
        gaps.setdefault(f"{method} loss", []).append(float(difference.mean()))
    return rows.to_markdown(4)


def overall(gaps: dict[str, list[float]]) -> str:
    rows = Table()
    for method in (LINEAR, *PEERS):
        areas, losses = gaps.get(method, [np.nan]), gaps.get(f"{method} loss", [np.nan])
        rows.append(
            {
                "against": method,
                "mean difference of AUC": float(np.mean(areas)),
                "sets ahead": sum(area > 0 for area in areas),
                "mean difference of log loss": float(np.mean(losses)),
                "sets with lower loss": sum(loss < 0 for loss in losses),
                "of": len(areas),
            }
        )
    return "## All sets\n\n" + rows.to_markdown(4)


if __name__ == "__main__":
    main()
