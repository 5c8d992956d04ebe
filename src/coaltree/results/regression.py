"""The results of a regression of many outcomes as a folder: the tree, coefficients, scores, the model and a page."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coaltree._version import __version__
from coaltree.errors import FolderError, InputError, TableError
from coaltree.regression.families import as_setting
from coaltree.regression.pairing import Data, read_columns, read_data
from coaltree.results.folder import (
    ANNOTATED,
    DIGITS,
    POSTERIOR_NEXUS,
    REPORT,
    SUMMARY,
    TREE,
    Progress,
    check_free,
    clade_shares,
    claimed,
    fingerprint_of_file,
    provenance,
    replaced_folder,
    shown_parameters,
    warnings_as_texts,
    write_summary,
    write_trees,
)
from coaltree.rows import Rows

if TYPE_CHECKING:
    from coaltree.estimators.regression import CoalescentRegression
    from coaltree.regression.comparison import Comparison
    from coaltree.regression.deviances import Deviances
    from coaltree.regression.families import Chosen

COMMAND = "coaltree regress"
COEFFICIENTS, NODES, AUC, PREDICTIONS = "coefficients.csv", "nodes.csv", "auc.csv", "predictions.csv"
DEVIANCES = "deviance.csv"
MODEL = "model.npz"
MEANING = {
    REPORT: "open this: the tree of outcomes, how well each is predicted, what to believe",
    AUC: "every score of every outcome and method, out of fold",
    COEFFICIENTS: "posterior mean and interval of every coefficient",
    NODES: "the models of the inner nodes of the tree",
    PREDICTIONS: "out-of-fold probabilities or expected values of every row and outcome",
    TREE: "the tree of outcomes with transfer supports, for any tree viewer",
    ANNOTATED: "the same with intervals of the merge times, for FigTree and BEAST tools",
    POSTERIOR_NEXUS: "all trees of the posterior, for any tree viewer",
    MODEL: "the model, for `coaltree regress predict` and CoalescentRegression.load",
    SUMMARY: "version, parameters, seed, diagnostics",
}
# Written in place of AUC where not all outcomes are binary.
INSTEAD = {DEVIANCES: "how much each method explains of counts and measurements, out of fold"}
DEFAULT_BASELINES = ("ml_probit", "ridge", "lasso", "elastic_net")


class RegressOptions(NamedTuple):
    """What determines the result besides the tables, as in summary.json."""

    folds: int
    iterations: int
    burn_in: int
    chains: int
    baselines: tuple[str, ...]
    seed: int
    jobs: int
    effects: str
    family: Any = "probit"
    exposure: str | None = None


def choose_baselines(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of baselines given one by one or as `a,b,c`, `none` or `all`."""
    from coaltree.regression.baselines import BASELINES

    names = [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else list(given)
    if names == ["none"]:
        return ()
    if names == ["all"]:
        return tuple(BASELINES)
    if any(name not in BASELINES for name in names) or (isinstance(given, str) and not names):
        raise InputError(f"{given!r} must be none, all, or names among {', '.join(BASELINES)}.")
    return tuple(dict.fromkeys(names))


class Regression(NamedTuple):
    """What was predicted and found."""

    model: CoalescentRegression
    data: Data
    comparison: Comparison | Deviances | None
    notes: tuple[str, ...]
    summary: dict[str, Any]
    seconds: float


def regress(
    features: Any,
    outcomes: Any,
    out: str | Path,
    *,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    n_folds: int = 10,
    n_iter: int = 1000,
    burn_in: int = 300,
    n_chains: int = 2,
    baselines: str | Sequence[str] = DEFAULT_BASELINES,
    family: Chosen = "probit",
    exposure: str | None = None,
    effects: str = "linear",
    random_state: int = 0,
    n_jobs: int = 1,
    checkpoint: str | Path | None = None,
    overwrite: bool = False,
    verbose: int = 0,
    command: str = "",
) -> Regression:
    """Predict many outcomes, compare with baselines and write a folder, as ``coaltree regress`` does.

    Parameters
    ----------
    features, outcomes : paths or DataFrames
        One row per case; outcomes are 0 and 1, yes and no, or numbers as `family` says, empty where unknown.
    out : path
        Folder to write; report.html in it explains the rest.
    id_column : str, optional
        Column of both tables that identifies a row; without it, rows are matched by position.
    drop : sequence of str
        Columns of either table to leave out.
    n_folds : int
        Folds of the comparison; 0 leaves it out.
    n_iter, burn_in, n_chains : int
        Iterations of every chain, how many are dropped, and the number of chains of the final fit; a fold has one.
    baselines : sequence of str, "none" or "all"
        Methods to compare with, names in `coaltree.regression.baselines.BASELINES`.
        If not all outcomes are binary, they are compared with ridge regressions.
    family : str or mapping
        What outcomes are, of `coaltree.regression.families`: one name, or names by outcome, others being binary.
    exposure : str, optional
        Column of the outcomes with the time at risk of counts.
    effects : {"linear", "auto"}
        "auto" adds nonlinear effects, if they improve predictions of held-out rows.
    random_state : int
        The same seed gives the same results.
    n_jobs : int
        Number of parallel fits; the result does not depend on it.
    checkpoint : path, optional
        Folder that keeps chains and finished folds, from which an interrupted run continues.
    overwrite : bool
        Replace what this function wrote into the folder before.
    verbose : int
        1 shows what is being done.
    command : str
        The command that reproduces the results, for the report.

    Returns
    -------
    Regression
        Its `model` is the fitted `CoalescentRegression`, its `summary` the contents of summary.json.
    """
    started, out, progress = time.perf_counter(), Path(out), Progress(bool(verbose))
    checkpoint = None if checkpoint is None else Path(checkpoint)
    options = RegressOptions(
        n_folds, n_iter, burn_in, n_chains, choose_baselines(baselines), random_state, n_jobs, effects, family, exposure
    )
    data = read_data(features, outcomes, id_column, drop, family, exposure)
    if n_folds > len(data.X):
        raise TableError(f"`n_folds` {n_folds} is more than the {len(data.X)} rows.")
    check_free(out, overwrite)
    with claimed(out), replaced_folder(out, COMMAND) as folder:
        n_rows, n_features = data.X.shape
        progress.say(f"{n_rows:,} rows, {n_features:,} features, {len(data.outcomes):,} outcomes.")
        for remark in data.notes:
            progress.say(f"  {remark}")
        try:
            with warnings_as_texts(convergence=False) as remarks:  # that is the verdict, reported at the end
                model = _fit(data, options, checkpoint, verbose)
        except KeyboardInterrupt:
            kept = f"The chains are kept in {checkpoint}: the same command continues from there." if checkpoint else ""
            raise KeyboardInterrupt(f"Interrupted before any draw was kept; nothing was written. {kept}") from None
        n_done = next(iter(model.fit_.trace.values())).shape[1]
        if n_done < n_iter:
            remarks.append(f"Interrupted: the first {n_done} of {n_iter} iterations of every chain count.")
        for remark in remarks:
            progress.say(f"  {remark}")
        comparison = None
        if n_folds:
            # Folds may lack a class that the whole has: this shows as NA in the tables, not as a warning per fold.
            try:
                with warnings_as_texts():
                    comparison = _compare(data, options, checkpoint, verbose)
            except KeyboardInterrupt:
                kept = f"; finished folds are kept in {checkpoint}" if checkpoint else ""
                remarks.append(f"The comparison was interrupted and is left out{kept}.")
                progress.say(f"\n  {remarks[-1]}")
        found = Regression(model, data, comparison, (*data.notes, *remarks), {}, 0.0)
        summary = provenance(COMMAND, command, random_state) | _summary(found, options, (features, outcomes))
        found = found._replace(summary=summary)
        _write(folder, found)
    return found._replace(seconds=time.perf_counter() - started)


# ---- the work


def _estimator(data: Data, options: RegressOptions, **settings: Any) -> CoalescentRegression:
    from coaltree.estimators.regression import CoalescentRegression  # scikit-learn is slow to load

    return CoalescentRegression(
        as_setting(data.families),
        n_iter=options.iterations,
        burn_in=options.burn_in,
        random_state=options.seed,
        features=options.effects,
        **settings,
    )


def _fit(data: Data, options: RegressOptions, checkpoint: Path | None, verbose: int) -> CoalescentRegression:
    file = None
    if checkpoint is not None:
        checkpoint.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(repr((__version__, options, data.features, data.outcomes)).encode())
        for array in (data.X, data.Y) if data.exposure is None else (data.X, data.Y, data.exposure):
            digest.update(np.ascontiguousarray(array).tobytes())
        file = checkpoint / f"final-{digest.hexdigest()[:16]}.npz"
    model = _estimator(data, options, n_chains=options.chains, n_jobs=options.jobs, verbose=verbose, checkpoint=file)
    labels = dict(zip(data.outcomes, data.Y.T, strict=True))
    return model.fit(data.columns, labels, exposure=data.exposure)


def _compare(data: Data, options: RegressOptions, checkpoint: Path | None, verbose: int) -> Comparison | Deviances:
    from coaltree.regression.baselines import BASELINES
    from coaltree.regression.comparison import compare
    from coaltree.report.regression import OURS

    ours = _estimator(data, options, n_chains=1)
    if not all(family.binary for family in data.families):
        from coaltree.regression.deviances import SeparateRidge, compare_deviances

        return compare_deviances(
            {OURS: ours} | ({"ridge": SeparateRidge(data.families)} if options.baselines else {}),
            data.X,
            data.Y,
            data.families,
            data.exposure,
            options.folds,
            options.seed,
            data.outcomes,
        )
    return compare(
        {OURS: ours} | {name: BASELINES[name]() for name in options.baselines},
        data.X,
        data.Y,
        n_folds=options.folds,
        random_state=options.seed,
        n_jobs=options.jobs,
        progress=bool(verbose),
        checkpoint=checkpoint,
        outcomes=data.outcomes,
    )


def _summary(found: Regression, options: RegressOptions, sources: tuple[Any, Any]) -> dict[str, Any]:
    """Everything that determines the result and how far to trust it."""
    from coaltree.regression.deviances import Deviances
    from coaltree.report.regression import OURS

    data, fit, comparison = found.data, found.model.fit_, found.comparison
    parameters = {key: value for key, value in options._asdict().items() if key not in ("seed", "jobs")}
    summary: dict[str, Any] = {
        "tables": [fingerprint_of_file(source) for source in sources],
        "n_rows": len(data.X),
        "features": list(data.features),
        "events": {
            name: int(np.nansum(y))
            for name, y, family in zip(data.outcomes, data.Y.T, data.families, strict=True)
            if family.with_events
        },
        "parameters": parameters | {"baselines": list(options.baselines)},
        "r_hat": fit.diagnostics["r_hat"],
        "bulk_ess": fit.diagnostics["bulk_ess"],
        "converged": fit.convergence.converged,
        "verdict": fit.convergence.verdict,
        "convergence": fit.convergence.as_dict(),
        "acceptance": fit.diagnostics["acceptance"],
    }
    if isinstance(comparison, Deviances):
        summary["deviances"] = list(comparison.table())
    elif comparison is not None:
        rows = [{key: value for key, value in row.items() if key != "seconds"} for row in comparison.summary()]
        summary["mean_scores"] = rows
        if len(rows) > 1:
            summary["differences"] = comparison.differences(OURS, mean_only=True)
    return summary


# ---- files


def _write(folder: Path, found: Regression) -> None:
    from coaltree.regression.deviances import Deviances
    from coaltree.report.regression import OURS, RegressionResult, coefficient_rows, regression_page

    model, data, comparison, summary = found.model, found.data, found.comparison, found.summary
    fit = model.fit_
    model.save(folder / MODEL)
    Rows(coefficient_rows(fit, data.features, data.outcomes)).to_csv(folder / COEFFICIENTS)
    tree, posterior = fit.tree, fit.posterior
    if tree is not None and posterior is not None:
        write_trees(folder, tree, posterior)
        n, shares = tree.n_leaves, clade_shares(posterior, tree)
        Rows(
            {
                "node": n + k,
                "outcomes": "; ".join(tree.leaf_names[leaf] for leaf in tree.leaves(n + k)),
                **{name: float(values[k]) for name, values in shares.items()},
                "time": float(tree.times[k]),
                "(intercept)": float(fit.node_intercept[n + k]),
                **{name: float(value) for name, value in zip(data.features, fit.node_coef[n + k], strict=True)},
            }
            for k in range(n - 1)
        ).to_csv(folder / NODES)
    if comparison is not None:
        comparison.table().to_csv(folder / (DEVIANCES if isinstance(comparison, Deviances) else AUC))
        expected = comparison.mean if isinstance(comparison, Deviances) else comparison.probability
        probability = expected[comparison.methods.index(OURS)]
        Rows(
            {"id": name, "fold": int(fold) + 1}
            | {outcome: round(float(p), DIGITS) for outcome, p in zip(data.outcomes, row, strict=True)}
            for name, fold, row in zip(data.ids, comparison.folds, probability, strict=True)
        ).to_csv(folder / PREDICTIONS)
    write_summary(folder, summary)
    result = RegressionResult(
        title=summary["tables"][1]["file"],
        fit=fit,
        scale=data.X.std(axis=0),
        features=data.features,
        outcomes=data.outcomes,
        n_rows=len(data.X),
        totals=np.nansum(data.Y, axis=0),
        comparison=comparison,
        parameters=shown_parameters(summary),
        command=summary["command_line"],
        notes=found.notes,
        stack=model.stack_,
        needs=() if model.encoding_ is None else tuple(model.encoding_.needs()),
    )
    regression_page(result).write(folder / REPORT)


# ---- new rows


def predict(
    model: str | Path, table: Any, out: str | Path, *, id_column: str | None = None, overwrite: bool = False
) -> tuple[int, int]:
    """Write what is expected of new rows, with posterior deviations, as ``coaltree regress predict`` does.

    Parameters
    ----------
    model : path
        The model.npz that `regress` or `CoalescentRegression.save` wrote.
    table : path or DataFrame
        New rows, with the columns that the model needs.
    out : path
        CSV file to write.
    id_column : str, optional
        Column with the names of the rows.
    overwrite : bool
        Replace the file if it exists.

    Returns
    -------
    n_rows, n_outcomes : int
    """
    from coaltree.estimators.regression import CoalescentRegression

    model, out = Path(model), Path(out)
    if out.exists() and not overwrite:
        raise FolderError(f"{out} exists. Choose another file, or replace it with `overwrite=True`.")
    if not model.is_file():
        raise TableError(f"{model} is not there. Give the {MODEL} that `{COMMAND}` wrote.")
    fitted = CoalescentRegression.load(model)
    new = read_columns(table, id_column)
    columns: Any = new.columns
    if fitted.encoding_ is None:  # fitted in Python to plain numbers
        columns = np.column_stack(list(new.columns.values()))
    mean, deviation = fitted.predict_mean(columns, return_std=True)
    names = fitted.outcome_names_ or tuple(f"outcome {j}" for j in range(mean.shape[1]))
    Rows(
        {"id": name}
        | {outcome: round(float(p), DIGITS) for outcome, p in zip(names, means, strict=True)}
        | {f"{outcome} sd": round(float(sd), DIGITS) for outcome, sd in zip(names, deviations, strict=True)}
        for name, means, deviations in zip(new.ids, mean, deviation, strict=True)
    ).to_csv(out)
    return len(new.ids), len(names)
