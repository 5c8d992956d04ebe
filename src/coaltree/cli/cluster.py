"""`coaltree cluster`: a table in, a folder of results and a page out."""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import typer

from coaltree._version import __version__
from coaltree.cli.fit import FitOptions, Fitted, fit_table
from coaltree.cli.folder import SUMMARY, FolderError, replaced_folder
from coaltree.cli.results import ANNOTATED, POSTERIOR_NEXUS, REPORT, TREE, timed, write_trees
from coaltree.cli.table import Table, TableError, read_table
from coaltree.model.guess import Guessed, guess_columns
from coaltree.model.roots import diagonal_of
from coaltree.posterior.apart import Shares
from coaltree.posterior.diagnostics import effective_size
from coaltree.posterior.sharing import MOST_PAIRED, separated, sharing_of_rows, spread_rows
from coaltree.tree import Tree
from coaltree.validation import is_diagonal

if TYPE_CHECKING:
    from coaltree.report.columns import ColumnsResult

Floats = npt.NDArray[np.float64]

COMMAND = "coaltree cluster"
POSTERIOR, LABELS, LINKAGE, TOGETHER = "posterior.npz", "labels.csv", "linkage.csv", "coclustering.npz"
SPLITS = "splits.csv"
MEANING = {
    REPORT: "open this: the tree, the clusters, what to believe",
    LABELS: "cluster of every row, 0 for outliers, and how sure that is",
    TREE: "the tree, with clade supports if trees were sampled, for any tree viewer",
    ANNOTATED: "the same with intervals of the merge times, for FigTree and BEAST tools",
    POSTERIOR_NEXUS: "all trees with their weights, for any tree viewer",
    POSTERIOR: "the same for Python: coaltree.TreePosterior.load(path)",
    LINKAGE: "the merges, as scipy and R know them",
    SPLITS: "for every merge, the columns in which its sides differ most, and how sure that is",
    TOGETHER: "probability that two rows share a cluster (of many rows, of a sample), for numpy",
    SUMMARY: "version, parameters, seed, diagnostics",
}
LEVEL = 0.9
# Entries of a vector or matrix that are told one by one.
MOST_ENTRIES = 100


def run(
    path: Path,
    out: Path,
    options: FitOptions,
    *,
    id_column: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    header: bool | None = None,
    drop_missing: bool = False,
    overwrite: bool = False,
    command: str = "",
) -> None:
    """Cluster the table at `path` and write the results into the folder `out`."""
    table = read_table(path, id_column, _split(features), _split(drop), header, drop_missing)
    guessed = guess_columns(table.frame, options.columns, options.dates, options.standardise)
    n, d = guessed.values.shape
    if options.n_clusters is not None and options.n_clusters > n:
        raise TableError(f"--n-clusters {options.n_clusters} is more than the {n} rows.")
    check_free(out, overwrite)
    started = time.perf_counter()
    with replaced_folder(out, COMMAND) as folder:
        typer.echo(f"{n:,} rows, {d:,} columns from {path}.")
        notes = [*table.notes, *guessed.notes, _standardised(options)]
        for note in notes:
            typer.echo(f"  {note}")
        fitted = fit_table(table.frame, guessed, table.ids, options, progress=True)
        summary = summarise(path, table, guessed, options, fitted, command)
        with timed("Writing"):
            _write(folder, table, guessed, fitted, summary, notes)
    _show(out, fitted, table, time.perf_counter() - started)


def check_free(out: Path, overwrite: bool) -> None:
    """Refuse a folder that holds something, unless it may be replaced, before time is spent."""
    try:
        taken = out.exists() and not (out.is_dir() and not any(out.iterdir()))
    except OSError as error:
        raise FolderError(f"cannot look into {out}: {error.strerror or error}. Choose another folder.") from error
    if taken and not overwrite:
        raise FolderError(f"{out} exists. Choose another folder, or replace what this command wrote with --overwrite.")


def _split(names: Sequence[str]) -> list[str]:
    """Names given as `a,b` or in several options; a name that holds a comma is quoted as in CSV."""
    return [name.strip() for row in csv.reader(names, skipinitialspace=True) for name in row if name.strip()]


def _standardised(options: FitOptions) -> str:
    if options.standardise:
        return "Columns are standardised to mean 0 and standard deviation 1; --no-standardise keeps their units."
    return "Columns are taken in their own units."


# ---- what was found


def summarise(
    path: Path, table: Table, guessed: Guessed, options: FitOptions, fitted: Fitted, command: str
) -> dict[str, Any]:
    """Everything that decides the result and what it is worth, as JSON values."""
    post = fitted.posterior
    kept = {name: values[:, fitted.warmup :] for name, values in fitted.trace.items()}
    sizes = np.bincount(fitted.labels + 1)
    return {
        "command": COMMAND,
        "command_line": command,
        "version": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seed": options.seed,
        "table": {
            "file": path.name,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "n_rows": len(guessed.values),
            "n_columns": len(guessed.columns.models),
            "features": list(guessed.columns.names),
            "kinds": {model.name: model.kind for model in guessed.columns.models},
            "notes": [*table.notes, *guessed.notes],
        },
        "parameters": {
            "covariance": options.covariance,
            "leaf_noise": options.leaf_noise,
            "standardise": options.standardise,
            "method": post.info["method"],
            "n_draws": len(post),
            **{name: post.info[name] for name in ("n_chains", "warmup", "thin", "iterations", "iterations_wanted")},
            "n_clusters": options.n_clusters,
        },
        "n_clusters": fitted.n_clusters,
        "n_clusters_chosen_by": fitted.chosen_by,
        "n_clusters_scores": {str(k): score for k, score in fitted.scores.items()},
        "cluster_sizes": sizes[1:].tolist(),
        "n_outliers": int(sizes[0]),
        "finished": post.info["iterations"] == post.info["iterations_wanted"],
        "warnings": list(fitted.warnings),
        "convergence": None if fitted.convergence is None else fitted.convergence.as_dict(),
        **_covariance(fitted.covariance),
        "leaf_noise": float(np.median(fitted.leaf_noise)),
        "compared": None if fitted.compared is None else {k: row._asdict() for k, row in fitted.compared.items()},
        "learned": {name: _learned(values) for name, values in kept.items()},
    }


def _covariance(phi: Floats) -> dict[str, Any]:
    """A full Φ as a matrix; of a diagonal one, however wide, the variances: one number if they are all the same."""
    if phi.ndim == 2 and not is_diagonal(phi):
        return {"covariance": phi.tolist()}
    variances = diagonal_of(phi)
    return {"variances": float(variances[0]) if np.all(variances == variances[0]) else variances.tolist()}


def _learned(draws: Floats) -> dict[str, Any]:
    """Medians of draws (C, I, …), how many, and the least effective size of an entry."""
    entries = draws.reshape(*draws.shape[:2], -1)
    chosen = entries[..., :MOST_ENTRIES]
    sizes = [effective_size(chosen[..., k]) for k in range(chosen.shape[2])]
    finite = [size for size in sizes if np.isfinite(size)]
    median = np.median(draws, axis=(0, 1))
    return {
        "median": median.tolist() if median.size <= MOST_ENTRIES else "in posterior.npz",
        "n_draws": int(np.prod(draws.shape[:2])),
        "lowest_ess": min(finite) if finite else None,
    }


# ---- files


def _write(
    folder: Path, table: Table, guessed: Guessed, fitted: Fitted, summary: dict[str, Any], notes: Sequence[str]
) -> None:
    from coaltree.report.clustering import ClusteringResult, clustering_page
    from coaltree.report.columns import ColumnsResult

    tree, post = fitted.tree, fitted.posterior
    support, intervals = write_trees(folder, tree, post), post.time_intervals(tree, LEVEL)
    labels, apart = fitted.labels, separated(fitted.labels)
    n_cut = int(apart.max()) + 1
    post.save(folder / POSTERIOR)
    if tree.n_leaves <= MOST_PAIRED:
        rows, together = np.arange(tree.n_leaves), post.coclustering(n_cut)
    else:
        rows = spread_rows(tree.leaf_order(), apart)
        together = sharing_of_rows(post, rows, n_cut)
    np.savez_compressed(folder / TOGETHER, probability=together.astype(np.float32), ids=np.array(table.ids)[rows])
    _write_csv(
        folder / LABELS,
        ("id", "cluster", "probability"),
        (
            (name, int(c) + 1, f"{share:.4f}")
            for name, c, share in zip(table.ids, labels, fitted.probabilities, strict=True)
        ),
    )
    told: list[tuple[Any, ...]] = [("",) * 4] * (tree.n_leaves - 1)  # of one tree alone
    if support is not None:
        numbers = zip(support.tolist(), post.support_error(tree).tolist(), intervals.tolist(), strict=True)
        told = [
            (f"{share:.4f}", f"{error:.4f}", *("" if end != end else end for end in ends))
            for share, error, ends in numbers
        ]
    _write_csv(
        folder / LINKAGE,
        ("left", "right", "time", "size", "support", "support_error", "time_low", "time_high"),
        (
            (int(left), int(right), when, int(size), *rest)
            for (left, right, when, size), rest in zip(tree.to_linkage().tolist(), told, strict=True)
        ),
    )
    told_columns = ColumnsResult(guessed.columns, guessed.values, fitted.apart)
    _write_splits(folder / SPLITS, told_columns, tree)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    result = ClusteringResult(
        title=summary["table"]["file"],
        tree=tree,
        posterior=post,
        X=guessed.values,
        features=guessed.columns.names,
        levels=tuple(model.levels for model in guessed.columns.models),
        told=told_columns,
        n_clusters=fitted.n_clusters,
        labels=labels,
        cut_order=fitted.cut_order,
        chosen_by=fitted.chosen_by,
        trace=fitted.trace,
        burn_in=fitted.warmup,
        parameters=_shown_parameters(summary),
        command=summary["command_line"],
        scores=fitted.scores,
        notes=tuple(notes),
        warnings=fitted.warnings,
        convergence=fitted.convergence,
        compared=fitted.compared,
        surprise=fitted.surprise,
    )
    clustering_page(result).write(folder / REPORT)


def _write_splits(path: Path, told: ColumnsResult, tree: Tree) -> None:
    """Write a line for each merge, in the order of linkage.csv, and column that sets its sides apart."""
    from coaltree.report.columns import split_words

    shares = Shares(tree, told.columns, told.values)
    n_places = told.apart.column.shape[1]
    _write_csv(
        path,
        ("merge", "column", "left_against_right", "size", "sure"),
        (
            (
                k,
                *split_words(told, tree, shares, k, place),
                f"{told.apart.size[k, place]:.4g}",
                f"{told.apart.sure[k, place]:.4f}",
            )
            for k in range(tree.n_leaves - 1)
            for place in range(n_places)
        ),
    )


def _shown_parameters(summary: dict[str, Any]) -> dict[str, object]:
    chosen = {key.replace("_", " "): value for key, value in summary["parameters"].items() if value is not None}
    return {
        **chosen,
        "seed": summary["seed"],
        "coaltree": summary["version"],
        "numpy": summary["numpy"],
        "Python": summary["python"],
        "SHA-256 of the table": summary["table"]["sha256"][:12] + "…",
    }


def _write_csv(path: Path, header: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


# ---- the terminal


def command_line(context: typer.Context) -> str:
    """The command that makes this result again: what was given, and the seed."""
    words = ["coaltree", str(context.info_name)]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        given = context.get_parameter_source(str(parameter.name))
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif parameter.name == "seed" or (value is not None and given is not None and given.name != "DEFAULT"):
            if isinstance(value, bool):
                words.append((parameter.opts if value else parameter.secondary_opts)[0])
            else:
                values = value if isinstance(value, (list, tuple)) else [value]
                words += [word for item in values for word in (parameter.opts[0], str(item))]
    return shlex.join(words)


def _show(out: Path, fitted: Fitted, table: Table, seconds: float) -> None:
    apart, *counts = np.bincount(fitted.labels + 1).tolist()
    sizes = sorted(counts, reverse=True)
    shown = ", ".join(f"{size:,}" for size in sizes[:8]) + (", …" if len(sizes) > 8 else "")
    post = fitted.posterior
    typer.secho(f"\n{fitted.n_clusters} cluster{'s' * (fitted.n_clusters > 1)} of {shown} rows.", bold=True)
    if apart:
        typer.echo(f"{apart} row{'s' * (apart > 1)} fit{'s' * (apart == 1)} nowhere: cluster 0 in {LABELS}.")
    typer.echo(fitted.chosen_by)
    typer.echo(f"{len(post)} tree{'s' * (len(post) > 1)} of {post.info['n_chains']} chain(s).")
    for told in fitted.warnings:
        typer.secho(told, fg=typer.colors.YELLOW)
    typer.echo(f"\nWrote to {out} in {seconds:.0f} s:")
    for name, meaning in MEANING.items():
        typer.echo(f"  {name:<18} {meaning}")
