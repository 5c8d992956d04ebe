"""Arguments of `coaltree regress` and `coaltree regress predict`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coaltree.cli.shared import QUIET, check_jobs, command_line, list_files, show_verdict, told, usual_folder
from coaltree.reading import split_names
from coaltree.results.regression import DEFAULT_BASELINES, INSTEAD, MEANING, choose_baselines, predict, regress

app = typer.Typer()


class Effects(StrEnum):
    """How features may act."""

    linear = "linear"
    auto = "auto"


@app.callback(invoke_without_command=True)
def _regress(
    context: typer.Context,
    features: Annotated[
        Path | None, typer.Option(help="CSV, TSV, Parquet or npy: numbers, levels, yes and no; one row per case.")
    ] = None,
    outcomes: Annotated[
        Path | None, typer.Option(help="The same for outcomes: 0 and 1, yes and no, empty where unknown.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; by default OUTCOMES-coaltree in the present folder.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column of both tables that identifies a row; else rows are in the same order.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out: a,b,c.")] = None,
    folds: Annotated[int, typer.Option(min=0, help="Folds of the comparison with other methods; 0: none.")] = 10,
    iterations: Annotated[int, typer.Option(min=2, help="Iterations of every chain.")] = 1000,
    burn_in: Annotated[int, typer.Option(min=0, help="Iterations to drop.")] = 300,
    chains: Annotated[int, typer.Option(min=1, help="Chains of the final fit; one in every fold.")] = 2,
    baselines: Annotated[
        str, typer.Option(help="Methods to compare with, a,b,c; none, or all (a random forest takes long).")
    ] = ",".join(DEFAULT_BASELINES),
    family: Annotated[
        str,
        typer.Option(
            help="probit, logit, poisson (counts) or normal (measurements); or by outcome, a=poisson,b=normal."
        ),
    ] = "probit",
    exposure: Annotated[
        str | None, typer.Option(help="Column of the outcomes with the time at risk of counts.")
    ] = None,
    effects: Annotated[
        Effects, typer.Option(help="linear, or auto: add a forest and a kernel regression if left-out rows gain.")
    ] = Effects.linear,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same results.")] = 0,
    jobs: Annotated[
        int, typer.Option(min=-1, callback=check_jobs, help="Fits side by side; -1 for all processors.")
    ] = 1,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder that keeps chains and finished folds: an interrupted run continues.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what this command wrote into the folder before.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help=QUIET)] = False,
) -> None:
    """Predict many outcomes together over a learned tree, and compare with one model per outcome."""
    if context.invoked_subcommand is not None:
        return
    given = {"--features": features, "--outcomes": outcomes}
    if features is None or outcomes is None:
        absent = next(name for name, value in given.items() if value is None)
        raise typer.BadParameter("is needed. See `coaltree regress --help`.", param_hint=absent)
    if burn_in >= iterations:
        raise typer.BadParameter(f"must be below --iterations {iterations}.", param_hint="--burn-in")
    if folds == 1:
        raise typer.BadParameter("must be 0 or at least 2.", param_hint="--folds")
    try:
        chosen = choose_baselines(baselines)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--baselines") from error
    out = usual_folder(outcomes) if out is None else out
    try:
        with told("--features, --outcomes", context, quiet):
            found = regress(
                features,
                outcomes,
                out,
                id_column=id_column,
                drop=split_names(drop or ()),
                n_folds=folds,
                n_iter=iterations,
                burn_in=burn_in,
                n_chains=chains,
                baselines=chosen,
                family=_family(family),
                exposure=exposure,
                effects=effects.value,
                random_state=seed,
                n_jobs=jobs,
                checkpoint=checkpoint,
                overwrite=overwrite,
                verbose=0 if quiet else 1,
                command=command_line(context),
            )
    except KeyboardInterrupt as interrupt:
        typer.echo(f"\n{interrupt}")
        raise typer.Exit(130) from None
    if found.comparison is not None and hasattr(found.comparison, "summary") and not quiet:
        from coaltree.report.regression import METHOD_NAMES

        typer.secho("\nMean area under the ROC curve, out of fold", bold=True)
        for row in found.comparison.summary():
            name = METHOD_NAMES.get(row["method"], row["method"])
            typer.echo(f"  {name:<28} {row['auroc']:.3f}  ({row['auroc_low']:.3f} to {row['auroc_high']:.3f})")
    convergence = found.model.convergence_
    if not quiet:
        typer.echo()
    show_verdict(convergence.verdict, convergence.converged, quiet)
    if not quiet:
        list_files(out, MEANING | INSTEAD, found.seconds)


def _family(given: str) -> str | dict[str, str]:
    """One name, or names by outcome."""
    if "=" not in given:
        return given
    pairs = [part.rpartition("=") for part in split_names([given])]
    return {outcome.strip(): name.strip() for outcome, _, name in pairs}


@app.command(name="predict")
def _predict(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="The model.npz of an earlier `coaltree regress`.")],
    table: Annotated[Path, typer.Argument(help="New rows, with the columns that the model needs.")],
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("predicted.csv"),
    id_column: Annotated[str | None, typer.Option(help="Column with the names of the rows.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Predict new rows with a saved model: probabilities and their posterior deviations."""
    with told("model, table", context):
        n_rows, n_outcomes = predict(model, table, out, id_column=id_column, overwrite=overwrite)
    typer.echo(f"Wrote {out}: {n_rows:,} rows, {n_outcomes:,} outcomes.")
