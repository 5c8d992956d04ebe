"""CoalescentProbit on columns as they come, linear and with features="auto", against its peers.

python -m benchmarks.raw --data FOLDER --mulan FOLDER --only emotions birds --held 1

FOLDER holds yeast.npz, medical.npz, birds_train.npz, birds_test.npz and synpuf/; the other one Mulan's emotions, enron
and scene as ARFF with their XML. "simulated" comes from the model itself (`benchmarks.regression`). Rows are cut into
three folds that share out every outcome's events; `--held` of them are predicted from the others. Finished fits are
kept in --keep, so that an interrupted run goes on; the page goes to --out.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
import time
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import coaltree as ct
from benchmarks.regression import REAL, simulate
from benchmarks.regression import load as load_npz
from coaltree.estimators.probit import CoalescentProbit
from coaltree.regression import stacking
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import Comparison
from coaltree.regression.folds import stratified_folds
from coaltree.regression.penalised import crossfit_ridge
from coaltree.rows import Rows

AUTO, LINEAR, SAME = "coalescent, auto", "coalescent, linear", "ridge, same columns"
PEERS = ("wide_ridge", "multi_forest", "kernel_ridge", "boosting", "classifier_chain", "ridge_stack")
MULAN = {"emotions": ("emotions",), "enron": ("enron",), "scene": ("scene-train", "scene-test")}
OTHER = ("synpuf", "simulated")
FEWEST_EVENTS = 5
FEWEST_WITH_CODE = 10
N_SIMULATED = 3_000
N_FOLDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mulan", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=[*REAL, *MULAN, *OTHER])
    parser.add_argument("--held", type=int, default=N_FOLDS)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
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
    if name == "simulated":
        X, Y, _ = simulate(0)
        return X[:N_SIMULATED], Y[:N_SIMULATED]
    if name == "synpuf":
        return read_synpuf(options.data / "synpuf")
    tables = [read_arff(options.mulan / f"{part}.arff") for part in MULAN[name]]
    labels = {element.attrib["name"] for element in ET.parse(options.mulan / f"{name}.xml").iter() if element.attrib}
    names, rows = tables[0][0], np.concatenate([rows for _, rows in tables])
    outcome = np.array([name in labels for name in names])
    Y = rows[:, outcome]
    kept = np.minimum(Y.sum(axis=0), len(Y) - Y.sum(axis=0)) >= FEWEST_EVENTS
    return rows[:, ~outcome], Y[:, kept]


def read_synpuf(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Chronic conditions of 2009 from the beneficiary file and the diagnoses of 2008, ICD-9 categories.

    The claims are synthetic: what 2009 owes to 2008 is little.
    """

    def rows(pattern: str) -> list[dict[str, str]]:
        found = []
        for path in sorted(folder.glob(pattern)):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                found += list(csv.DictReader(file))
        return found

    before, after = ({row["DESYNPUF_ID"]: row for row in rows(f"DE1_0_{year}_Benef*")} for year in (2008, 2009))
    people = sorted(before.keys() & after.keys())
    number = {person: i for i, person in enumerate(people)}
    codes: dict[str, np.ndarray] = {}
    for claim in [row for kind in ("Carrier", "Inpatient", "Outpatient") for row in rows(f"*{kind}*")]:
        if claim["CLM_FROM_DT"].startswith("2008") and claim["DESYNPUF_ID"] in number:
            for key, code in claim.items():
                if key.startswith("ICD9_DGNS") and code:
                    codes.setdefault(code[:3], np.zeros(len(people)))[number[claim["DESYNPUF_ID"]]] += 1.0
    conditions = [key for key in before[people[0]] if key.startswith("SP_") and key != "SP_STATE_CODE"]
    numbers = [key for key in before[people[0]] if key.endswith(("_MONS", "_IP", "_OP", "_CAR")) or "SEX" in key]
    ages = [2009 - int(before[person]["BENE_BIRTH_DT"][:4]) for person in people]
    known = [[float(before[person][key]) for key in conditions + numbers] for person in people]
    common = [np.log1p(column) for _, column in sorted(codes.items()) if (column > 0).sum() >= FEWEST_WITH_CODE]
    X = np.column_stack([ages, known, *common])
    return X, np.array([[float(after[person][key] == "1") for key in conditions] for person in people])


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
    found = {AUTO: CoalescentProbit(**ours, features="auto"), LINEAR: CoalescentProbit(**ours), SAME: None}
    return found | {name: BASELINES[name]() for name in options.peers}


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
                options.keep.mkdir(parents=True, exist_ok=True)
                began = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if method == AUTO:
                        found = fit_auto(model, X[train], Y[train], X[test])
                    else:
                        found = {method: model.fit(X[train], Y[train]).predict_proba(X[test])}
                used = time.process_time() - began
                # The linear model and the columns are parts of the first: no need to fit them again.
                for key, p in found.items():
                    np.savez(
                        file.with_name(file.name.replace(method, key)), p=p, seconds=used if key == method else np.nan
                    )
                print(f"{name} fold {fold} {method}: {used:.0f} s", flush=True)
            kept = np.load(file, allow_pickle=False)
            probability[m, test], seconds[m, fold] = kept["p"], kept["seconds"]
    outcomes = tuple(str(j) for j in range(Y.shape[1]))
    p = probability[:, rows]
    return Comparison(tuple(chosen), outcomes, Y[rows], folds[rows], p, p, seconds, n_resamples=300)


def fit_auto(model: CoalescentProbit, X: np.ndarray, Y: np.ndarray, new: np.ndarray) -> dict[str, np.ndarray]:
    """Predictions of new rows by the stack, by its linear part, and by ridge regression on the columns of the stack."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    columns = stacking.stacked_columns

    def watched(*arguments: Any) -> tuple[np.ndarray, np.ndarray]:
        seen.append(columns(*arguments))
        return seen[-1]

    stacking.stacked_columns = watched
    try:
        model.fit(X, Y)
        stack = model.stack_
        found = {AUTO: model.predict_proba(new), LINEAR: model.fit_.predict_proba(new)}
        stack.predict(new, model.fit_, None, False)
    finally:
        stacking.stacked_columns = columns
    (shared, own), (new_shared, new_own) = seen[0], seen[-1]
    found[SAME] = found[LINEAR].copy()
    folds = stratified_folds(Y, 5, 0)
    for place, j in enumerate(stack.kept):
        rows = np.column_stack([shared, own[:, :, place].T])
        rate = np.array([(np.nansum(Y[:, j]) + 0.5) / (len(Y) + 1.0)])
        ridge, _ = crossfit_ridge(rows, Y[:, [j]], np.ones(len(Y)), rate, folds)
        found[SAME][:, [j]] = expit(ridge.logits(np.column_stack([new_shared, new_own[:, :, place].T])))
    return found


def describe(name: str, found: Comparison) -> str:
    return f"## {name}\n\n{len(found.Y):,} rows predicted, {len(found.outcomes)} outcomes.\n"


def losses(found: Comparison) -> np.ndarray:
    """Log loss of every method and row, mean over outcomes, (M, N)."""
    p = np.clip(found.probability, 1e-12, 1 - 1e-12)
    return -np.log(np.where(found.Y == 1, p, 1 - p)).mean(axis=2)


def table(found: Comparison, gaps: dict[str, list[float]]) -> str:
    loss, rows = losses(found), Rows()
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
    rows = Rows()
    for method in (LINEAR, SAME, *PEERS):
        if method not in gaps:
            continue
        areas, losses = gaps[method], gaps[f"{method} loss"]
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
