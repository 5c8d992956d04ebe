"""`coaltree regress`: tables of features and outcomes in, a folder of results and a page out."""

from __future__ import annotations

import hashlib
import json
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

from coaltree._version import __version__
from coaltree.cli.folder import SUMMARY, FolderError, replaced_folder
from coaltree.cli.pairing import Data, read_data
from coaltree.cli.results import ANNOTATED, DIGITS, POSTERIOR_NEXUS, REPORT, TREE, write_trees
from coaltree.cli.table import TableError

if TYPE_CHECKING:
    from coaltree.estimators.probit import CoalescentProbit
    from coaltree.regression.comparison import Comparison
    from coaltree.regression.fit import ProbitFit

Floats = npt.NDArray[np.float64]

COMMAND = "coaltree regress"
COEFFICIENTS, NODES, AUC, PREDICTIONS = "coefficients.csv", "nodes.csv", "auc.csv", "predictions.csv"
MODEL = "model.npz"
MEANING = {
    REPORT: "open this: the tree of outcomes, how well each is predicted, what to believe",
    AUC: "every score of every outcome and method, out of fold",
    COEFFICIENTS: "posterior mean and interval of every coefficient",
    NODES: "the models of the inner nodes of the tree",
    PREDICTIONS: "out-of-fold probabilities of every row and outcome",
    TREE: "the tree of outcomes with clade supports, for any tree viewer",
    ANNOTATED: "the same with intervals of the merge times, for FigTree and BEAST tools",
    POSTERIOR_NEXUS: "all trees of the posterior, for any tree viewer",
    MODEL: "the model, for `coaltree regress predict` and CoalescentProbit.load",
    SUMMARY: "version, parameters, seed, diagnostics",
}
DEFAULT_BASELINES = "ml_probit,ridge,lasso,elastic_net"


class RegressOptions(NamedTuple):
    """What decides the result besides the tables."""

    folds: int = 10
    iterations: int = 1000
    burn_in: int = 300
    chains: int = 2
    baselines: tuple[str, ...] = tuple(DEFAULT_BASELINES.split(","))
    seed: int = 0
    jobs: int = 1
    effects: str = "linear"


def choose_baselines(text: str) -> tuple[str, ...]:
    """Names of baselines from `a,b,c`, `none` or `all`."""
    from coaltree.regression.baselines import BASELINES

    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return ()
    if names == ["all"]:
        return tuple(BASELINES)
    unknown = [name for name in names if name not in BASELINES]
    if unknown or not names:
        raise ValueError(f"{text!r} must be none, all, or names among {', '.join(BASELINES)}.")
    return tuple(dict.fromkeys(names))


def run(
    features: Path,
    outcomes: Path,
    out: Path,
    options: RegressOptions,
    *,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    overwrite: bool = False,
    checkpoint: Path | None = None,
    command: str = "",
) -> None:
    """Fit the outcomes, compare with the baselines and write the results into the folder `out`."""
    data = read_data(features, outcomes, id_column, drop)
    if options.folds > len(data.X):
        raise TableError(f"--folds {options.folds} is more than the {len(data.X)} rows.")
    if out.exists() and not overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise FolderError(f"{out} exists. Choose another folder, or replace what this command wrote with --overwrite.")
    started = time.perf_counter()
    with replaced_folder(out, COMMAND) as folder:
        n_rows, n_features = data.X.shape
        typer.echo(f"{n_rows:,} rows, {n_features:,} features, {len(data.outcomes):,} outcomes.")
        for remark in data.notes:
            typer.echo(f"  {remark}")
        try:
            model, remarks = _quietly(lambda: _fit(data, options, checkpoint))
        except KeyboardInterrupt:
            kept = f"The chains are kept in {checkpoint}: the same command goes on from there." if checkpoint else ""
            typer.echo(f"\nInterrupted before any draw was kept; nothing was written. {kept}")
            raise typer.Exit(130) from None
        fit = model.fit_
        n_done = next(iter(fit.trace.values())).shape[1]
        if n_done < options.iterations:
            remarks.append(f"Interrupted: the first {n_done} of {options.iterations} iterations of every chain count.")
        for remark in remarks:
            typer.echo(f"  {remark}")
        comparison = None
        if options.folds:
            # Folds may lack a class that the whole has: that is told by NA in the tables, not by a warning a fold.
            try:
                comparison, _ = _quietly(lambda: _compare(data, options, checkpoint))
            except KeyboardInterrupt:
                kept = f"; finished folds are kept in {checkpoint}" if checkpoint else ""
                remarks.append(f"The comparison was interrupted and is left out{kept}.")
                typer.echo(f"\n  {remarks[-1]}")
        summary = summarise((features, outcomes), data, options, fit, comparison, command)
        _write(folder, data, model, comparison, summary, (*data.notes, *remarks))
    _show(out, comparison, fit, time.perf_counter() - started)


# ---- the work


def _estimator(options: RegressOptions, n_chains: int) -> CoalescentProbit:
    from coaltree.estimators.probit import CoalescentProbit

    return CoalescentProbit(
        n_iter=options.iterations,
        burn_in=options.burn_in,
        n_chains=n_chains,
        random_state=options.seed,
        features=options.effects,
    )


def _fit(data: Data, options: RegressOptions, checkpoint: Path | None) -> CoalescentProbit:
    model = _estimator(options, options.chains)
    model.set_params(n_jobs=options.jobs, verbose=1)
    if checkpoint is not None:
        checkpoint.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(repr((__version__, options, data.features, data.outcomes)).encode())
        for array in (data.X, data.Y):
            digest.update(np.ascontiguousarray(array).tobytes())
        model.set_params(checkpoint=checkpoint / f"final-{digest.hexdigest()[:16]}.npz")
    return model.fit(data.columns, dict(zip(data.outcomes, data.Y.T, strict=True)))


def _compare(data: Data, options: RegressOptions, checkpoint: Path | None) -> Comparison:
    from coaltree.regression.baselines import BASELINES
    from coaltree.regression.comparison import compare
    from coaltree.report.regression import OURS

    return compare(
        {OURS: _estimator(options, 1)} | {name: BASELINES[name]() for name in options.baselines},
        data.X,
        data.Y,
        n_folds=options.folds,
        random_state=options.seed,
        n_jobs=options.jobs,
        progress=True,
        checkpoint=checkpoint,
        outcomes=data.outcomes,
    )


def predict(model: Path, table: Path, out: Path, id_column: str | None = None, overwrite: bool = False) -> None:
    """Write probabilities of the rows of a table, with their posterior deviations, by a model that was kept."""
    from coaltree.cli.pairing import read_columns
    from coaltree.estimators.probit import CoalescentProbit
    from coaltree.regression.comparison import Table as Rows

    if out.exists() and not overwrite:
        raise FolderError(f"{out} exists. Choose another file, or replace it with --overwrite.")
    if not model.is_file():
        raise TableError(f"{model} is not there. Give the {MODEL} that `{COMMAND}` wrote.")
    fitted = CoalescentProbit.load(model)
    new = read_columns(table, id_column)
    columns: Any = new.columns
    if fitted.encoding_ is None:  # fitted in Python, to plain numbers
        columns = np.column_stack(list(new.columns.values()))
    mean, deviation = fitted.predict_proba(columns, return_std=True)
    names = fitted.outcome_names_ or tuple(f"outcome {j}" for j in range(mean.shape[1]))
    Rows(
        {"id": name}
        | {outcome: round(float(p), DIGITS) for outcome, p in zip(names, means, strict=True)}
        | {f"{outcome} sd": round(float(sd), DIGITS) for outcome, sd in zip(names, deviations, strict=True)}
        for name, means, deviations in zip(new.ids, mean, deviation, strict=True)
    ).to_csv(out)
    typer.echo(f"Wrote {out}: {len(new.ids):,} rows, {len(names):,} outcomes.")


def _quietly(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Do something and give its warnings back as texts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = work()
    return result, list(dict.fromkeys(str(warning.message) for warning in caught if warning.category is UserWarning))


def summarise(
    paths: tuple[Path, Path],
    data: Data,
    options: RegressOptions,
    fit: ProbitFit,
    comparison: Comparison | None,
    command: str,
) -> dict[str, Any]:
    """Everything that decides the result and what it is worth, as JSON values."""
    from coaltree.report.regression import OURS

    parameters = {key: value for key, value in options._asdict().items() if key not in ("seed", "jobs")}
    found: dict[str, Any] = {
        "command": COMMAND,
        "command_line": command,
        "version": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seed": options.seed,
        "tables": [{"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in paths],
        "n_rows": len(data.X),
        "features": list(data.features),
        "events": {name: int(np.nansum(y)) for name, y in zip(data.outcomes, data.Y.T, strict=True)},
        "parameters": parameters | {"baselines": list(options.baselines)},
        "r_hat": _number(fit.diagnostics["r_hat"]),
        "bulk_ess": _number(fit.diagnostics["bulk_ess"]),
        "converged": fit.verdict[0],
        "acceptance": _number(fit.diagnostics["acceptance"]),
    }
    if comparison is not None:
        rows = [{key: _number(value) for key, value in row.items() if key != "seconds"} for row in comparison.summary()]
        found["mean_scores"] = rows
        if len(rows) > 1:
            gaps = comparison.differences(OURS, mean_only=True)
            found["differences"] = [{key: _number(value) for key, value in row.items()} for row in gaps]
    return found


def _number(value: Any) -> Any:
    """A JSON value: NaN and infinity become null."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


# ---- files


def _write(
    folder: Path,
    data: Data,
    model: CoalescentProbit,
    comparison: Comparison | None,
    summary: dict[str, Any],
    notes: tuple[str, ...],
) -> None:
    from coaltree.regression.comparison import Table as Rows
    from coaltree.report.regression import OURS, RegressionResult, coefficient_rows, regression_page

    fit = model.fit_
    model.save(folder / MODEL)
    Rows(coefficient_rows(fit, data.features, data.outcomes)).to_csv(folder / COEFFICIENTS)
    tree, posterior = fit.tree, fit.posterior
    if tree is not None and posterior is not None:
        support = write_trees(folder, tree, posterior)
        n = tree.n_leaves
        Rows(
            {
                "node": n + k,
                "outcomes": "; ".join(tree.leaf_names[leaf] for leaf in tree.leaves(n + k)),
                "support": None if support is None else float(support[k]),
                "time": float(tree.times[k]),
                "(intercept)": float(fit.node_intercept[n + k]),
                **{name: float(value) for name, value in zip(data.features, fit.node_coef[n + k], strict=True)},
            }
            for k in range(n - 1)
        ).to_csv(folder / NODES)
    if comparison is not None:
        comparison.table().to_csv(folder / AUC)
        probability = comparison.probability[comparison.methods.index(OURS)]
        Rows(
            {"id": name, "fold": int(fold) + 1}
            | {outcome: round(float(p), DIGITS) for outcome, p in zip(data.outcomes, row, strict=True)}
            for name, fold, row in zip(data.ids, comparison.folds, probability, strict=True)
        ).to_csv(folder / PREDICTIONS)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    result = RegressionResult(
        title=summary["tables"][1]["file"],
        fit=fit,
        scale=data.X.std(axis=0),
        features=data.features,
        outcomes=data.outcomes,
        n_rows=len(data.X),
        n_events=np.nansum(data.Y, axis=0).astype(np.int64),
        comparison=comparison,
        parameters={
            **{key.replace("_", " "): value for key, value in summary["parameters"].items()},
            "seed": summary["seed"],
            "coaltree": summary["version"],
            "numpy": summary["numpy"],
            "Python": summary["python"],
        },
        command=summary["command_line"],
        notes=notes,
        stack=model.stack_,
        needs=() if model.encoding_ is None else tuple(model.encoding_.needs()),
    )
    regression_page(result).write(folder / REPORT)


# ---- the terminal


def _show(out: Path, comparison: Comparison | None, fit: ProbitFit, seconds: float) -> None:
    from coaltree.report.regression import METHOD_NAMES

    if comparison is not None:
        typer.secho("\nMean area under the ROC curve, out of fold", bold=True)
        for row in comparison.summary():
            name = METHOD_NAMES.get(row["method"], row["method"])
            typer.echo(f"  {name:<28} {row['auroc']:.3f}  ({row['auroc_low']:.3f} to {row['auroc_high']:.3f})")
    typer.echo(f"\n{fit.verdict[1]}")
    typer.echo(f"\nWrote to {out} in {seconds:.0f} s:")
    for name, meaning in MEANING.items():
        if (out / name).exists():
            typer.echo(f"  {name:<18} {meaning}")
