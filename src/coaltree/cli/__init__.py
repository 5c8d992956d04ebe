"""The `coaltree` command: arguments in, exit codes out. The work is done by the modules it calls."""

from __future__ import annotations

import csv
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coaltree._version import __version__
from coaltree.cli import records, regress
from coaltree.cli.shared import QUIET, check_jobs, command_line, list_files, show_verdict, told, usual_folder
from coaltree.inference.learning.chain import AUTO, GREEDY
from coaltree.model.kinds import KINDS
from coaltree.reading import split_names
from coaltree.results.clustering import LABELS, MEANING, Clustering, cluster
from coaltree.results.iris import MEANING as OF_DEMO
from coaltree.results.iris import demo, describe_flowers

app = typer.Typer(
    help="Bayesian hierarchical clustering with Kingman's coalescent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coaltree {__version__}")
        raise typer.Exit


# A callback keeps `demo` a subcommand: typer folds an app with a single command into that command.
@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(name="demo")
def _demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write; replaced if an earlier demo made it.")] = Path(
        "coaltree-demo"
    ),
    particles: Annotated[int, typer.Option(min=2, max=100_000, help="Trees per posterior.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same files.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help=QUIET)] = False,
) -> None:
    """Sample the trees of 30 iris flowers, draw them and say which branches to trust."""
    with told("--out", context, quiet):
        summary = demo(out, n_particles=particles, random_state=seed, verbose=0 if quiet else 1)
    if quiet:
        return
    for heading, table in describe_flowers(summary):
        typer.secho(f"\n{heading}", bold=True)
        typer.echo(table)
    list_files(out, OF_DEMO)


class Covariance(StrEnum):
    """Families of Φ that can be learned from a table alone."""

    spherical = "spherical"
    diagonal = "diagonal"
    shrunk = "shrunk"
    wishart = "wishart"
    factors = "factors"
    auto = "auto"


class ScaleChoice(StrEnum):
    """What is done about the units of numbers."""

    auto = "auto"
    standard = "standard"
    none = "none"


class Metric(StrEnum):
    """What rows are compared by."""

    euclidean = "euclidean"
    cosine = "cosine"
    correlation = "correlation"
    precomputed = "precomputed"
    precomputed_squared = "precomputed_squared"


Method = StrEnum("Method", [AUTO, GREEDY])  # type: ignore[misc]
_AUTO = Method(AUTO)


@app.command(name="cluster")
def _cluster(
    context: typer.Context,
    table: Annotated[Path, typer.Argument(help="CSV, TSV, Excel, Parquet, Feather, h5ad or npy; one row per thing.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; by default TABLE-coaltree in the present folder.")
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Column with the names of the rows.")] = None,
    features: Annotated[list[str] | None, typer.Option(help="Columns to cluster by: a,b,c. All if not given.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out: a,b,c.")] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line names the columns; by default, unless it is all numbers.",
        ),
    ] = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")] = False,
    scale: Annotated[
        ScaleChoice,
        typer.Option(
            help="standard: bring columns to standard deviation 1; none: keep their units; auto: standard, unless all "
            "are components of one reduction, such as PC1, PC2."
        ),
    ] = ScaleChoice.auto,
    covariance: Annotated[
        Covariance | None,
        typer.Option(
            help="spherical: one variance for all columns; diagonal: one for each; shrunk, wishart: a full matrix, "
            "with or without shrinkage; factors: a few common factors; auto: what predicts left-out rows best. "
            "Default: shrunk if rows are enough for the columns, else spherical; diagonal if some columns are levels."
        ),
    ] = None,
    leaf_noise: Annotated[
        str,
        typer.Option(
            help="Measurement noise. learn: one variance for all rows; robust: one per row, for outliers; auto: what "
            "predicts left-out rows better; or a number, in units of the covariance."
        ),
    ] = "learn",
    draws: Annotated[
        int | None,
        typer.Option(min=2, max=100_000, help="Trees in the posterior; by default 200, or 100 if there are many rows."),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            min=0, help="Iterations of each chain to drop; by default a third, and chains end once they have converged."
        ),
    ] = None,
    chains: Annotated[int | None, typer.Option(min=1, help="Chains, from different starts; 2 by default.")] = None,
    method: Annotated[
        Method, typer.Option(help="auto: many trees, with supports; greedy: one tree, fast, without.")
    ] = _AUTO,
    n_clusters: Annotated[
        int | None, typer.Option(min=1, help="Number of clusters; by default chosen from the data.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same files.")] = 0,
    jobs: Annotated[
        int, typer.Option(min=-1, callback=check_jobs, help="Threads; -1 for all. They do not change the result.")
    ] = -1,
    columns: Annotated[
        str,
        typer.Option(
            help="Kinds of the columns: auto (recognised, and reported), name=kind,name=kind for some, or a TOML file. "
            f"Kinds: {', '.join(KINDS)}, ignore."
        ),
    ] = "auto",
    dates: Annotated[str, typer.Option(help="days: take dates as numbers of days; ignore: leave them out.")] = "days",
    metric: Annotated[
        Metric,
        typer.Option(
            help="Compare rows by their values, directions or correlation; precomputed: the table holds distances, or "
            "their squares."
        ),
    ] = Metric.euclidean,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what this command wrote into the folder before.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help=QUIET)] = False,
) -> None:
    """Cluster the rows of a table: posterior trees, clusters, and a page that tells what to believe."""
    out = usual_folder(table) if out is None else out
    with told("table", context, quiet):
        found = cluster(
            table,
            out,
            id_column=id_column,
            features=split_names(features or ()),
            drop=split_names(drop or ()),
            header=header,
            drop_missing=drop_missing,
            columns=_as_columns(columns),
            dates=dates,
            scale=scale.value,
            metric=metric.value,
            covariance=None if covariance is None else covariance.value,
            leaf_noise=_as_noise(leaf_noise),
            n_draws=draws,
            warmup=warmup,
            n_chains=chains,
            method=method.value,
            n_clusters=n_clusters,
            random_state=seed,
            n_jobs=jobs,
            overwrite=overwrite,
            verbose=0 if quiet else 1,
            command=command_line(context),
        )
    if not quiet:
        _show_clusters(found)
    _show_doubts(found, quiet)
    if not quiet:
        list_files(out, MEANING, found.seconds)


def _show_clusters(found: Clustering) -> None:
    model = found.model
    n_apart, sizes = found.summary["n_outliers"], sorted(found.summary["cluster_sizes"], reverse=True)
    shown = ", ".join(f"{size:,}" for size in sizes[:8]) + (", …" if len(sizes) > 8 else "")
    typer.secho(f"\n{len(sizes)} cluster{'s' * (len(sizes) > 1)} of {shown} rows.", bold=True)
    if n_apart:
        typer.echo(f"{n_apart} row{'s' * (n_apart > 1)} fit{'s' * (n_apart == 1)} nowhere: cluster -1 in {LABELS}.")
    typer.echo(found.chosen_by)
    n_trees = len(model.posterior_)
    typer.echo(f"{n_trees} tree{'s' * (n_trees > 1)} of {model.posterior_.info['n_chains']} chain(s).")


def _show_doubts(found: Clustering, quiet: bool) -> None:
    """Print warnings and what the chains say about themselves; if `quiet`, only what is wrong, as errors are."""
    convergence = found.model.convergence_
    for warning in found.warnings:
        if convergence is None or warning not in convergence.warnings:
            typer.secho(warning, fg=typer.colors.YELLOW, err=quiet)
    if convergence is not None:
        show_verdict(convergence.verdict, convergence.converged, quiet)


def _as_columns(text: str) -> str | dict[str, str]:
    """Return name=kind pairs as a mapping; "auto" or a path unchanged."""
    if "=" not in text:
        return text
    pairs = [pair.rpartition("=") for row in csv.reader([text], skipinitialspace=True) for pair in row if pair.strip()]
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def _as_noise(text: str) -> str | float:
    if text in ("learn", "robust", "auto"):
        return text
    try:
        noise = float(text)
    except ValueError:
        noise = -1.0
    if not 0.0 <= noise < float("inf"):
        raise typer.BadParameter(
            f"must be a number that is not negative, or learn, robust or auto, got {text!r}.", param_hint="--leaf-noise"
        )
    return noise


app.add_typer(regress.app, name="regress")
app.add_typer(records.app, name="records")


def main() -> None:
    """Run the command line."""
    app(prog_name="coaltree")
