"""Arguments of `coaltree regress` and `coaltree regress predict`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coaltree.cli import cluster, regress
from coaltree.cli.folder import FolderError
from coaltree.cli.table import TableError

app = typer.Typer()


@contextmanager
def told(tables: str) -> Iterator[None]:
    """Errors as this command tells them: with the option they are about."""
    try:
        yield
    except (TableError, FolderError) as error:
        hint = tables if isinstance(error, TableError) else "--out"
        raise typer.BadParameter(str(error), param_hint=hint) from error
    except ValueError as error:  # the library names the argument and the fix
        raise typer.BadParameter(str(error)) from error


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
    out: Annotated[Path | None, typer.Option(help="Folder to write.")] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column of both tables that identifies a row; else rows are in the same order.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out: a,b,c.")] = None,
    folds: Annotated[int, typer.Option(min=0, help="Folds of the comparison; 0 leaves it out.")] = 10,
    iterations: Annotated[int, typer.Option(min=2, help="Iterations of every chain.")] = 1000,
    burn_in: Annotated[int, typer.Option(min=0, help="Iterations to drop.")] = 300,
    chains: Annotated[int, typer.Option(min=1, help="Chains of the final fit; one in every fold.")] = 2,
    baselines: Annotated[
        str, typer.Option(help="Methods to compare with, a,b,c; none, or all (a random forest takes long).")
    ] = regress.DEFAULT_BASELINES,
    effects: Annotated[
        Effects, typer.Option(help="linear; auto adds what a forest sees, if rows left out gain by it.")
    ] = Effects.linear,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same results.")] = 0,
    jobs: Annotated[int, typer.Option(min=-1, help="Fits side by side; -1 for all processors.")] = 1,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder that keeps chains and finished folds: an interrupted run goes on.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what this command wrote into the folder before.")
    ] = False,
) -> None:
    """Predict many binary outcomes together over a learned tree, and compare with one model an outcome."""
    if context.invoked_subcommand is not None:
        return
    given = {"--features": features, "--outcomes": outcomes, "--out": out}
    if features is None or outcomes is None or out is None:
        absent = next(name for name, value in given.items() if value is None)
        raise typer.BadParameter("is needed. See `coaltree regress --help`.", param_hint=absent)
    if burn_in >= iterations:
        raise typer.BadParameter(f"must be below --iterations {iterations}.", param_hint="--burn-in")
    if folds == 1:
        raise typer.BadParameter("must be 0 or at least 2.", param_hint="--folds")
    if jobs == 0:
        raise typer.BadParameter("must be -1 or at least 1.", param_hint="--jobs")
    try:
        chosen = regress.choose_baselines(baselines)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--baselines") from error
    options = regress.RegressOptions(folds, iterations, burn_in, chains, chosen, seed, jobs, effects.value)
    with told("--features, --outcomes"):
        regress.run(
            features,
            outcomes,
            out,
            options,
            id_column=id_column,
            drop=drop or (),
            overwrite=overwrite,
            checkpoint=checkpoint,
            command=cluster.command_line(context),
        )


@app.command(name="predict")
def _predict(
    model: Annotated[Path, typer.Argument(help="The model.npz of an earlier `coaltree regress`.")],
    table: Annotated[Path, typer.Argument(help="New rows, with the columns that the model needs.")],
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("predicted.csv"),
    id_column: Annotated[str | None, typer.Option(help="Column with the names of the rows.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Predict new rows by a model that was kept: probabilities and their posterior deviations."""
    with told("model, table"):
        regress.predict(model, table, out, id_column, overwrite)
