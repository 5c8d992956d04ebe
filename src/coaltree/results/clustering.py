"""The results of a clustering as a folder: labels, trees, tables and a page that says what to believe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats
from coaltree.errors import TableError
from coaltree.model.factorisations import diagonal_of
from coaltree.model.guess import Guessed, guess_columns
from coaltree.posterior.coclustering import MOST_PAIRED, separated, sharing_of_rows, spread_rows
from coaltree.posterior.diagnostics import effective_size
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.splits import Shares
from coaltree.reading import Table, is_path, read_table
from coaltree.results.folder import (
    ANNOTATED,
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
from coaltree.results.how_many import describe_choice, evidence
from coaltree.rows import Rows
from coaltree.tree import Tree
from coaltree.validation import is_diagonal

if TYPE_CHECKING:
    from coaltree.estimators.clustering import CoalescentClustering
    from coaltree.report.columns import ColumnsResult


COMMAND = "coaltree cluster"
POSTERIOR, LABELS, LINKAGE, TOGETHER = "posterior.npz", "labels.csv", "linkage.csv", "coclustering.npz"
SPLITS = "splits.csv"
MEANING = {
    REPORT: "open this: the tree, the clusters, what to believe",
    LABELS: "cluster of every row, as in Python: 0, 1, …, and −1 for outliers; its probability; its expected overlap",
    TREE: "the tree, with transfer supports if trees were sampled, for any tree viewer",
    ANNOTATED: "the same with intervals of the merge times, for FigTree and BEAST tools",
    POSTERIOR_NEXUS: "all trees with their weights, for any tree viewer",
    POSTERIOR: "the same for Python: coaltree.TreePosterior.load(path)",
    LINKAGE: "the merges, as scipy and R know them",
    SPLITS: "for every merge, the columns in which its sides differ most, with probabilities",
    TOGETHER: "probability that two rows share a cluster (of many rows, of a sample), for numpy",
    SUMMARY: "version, parameters, seed, diagnostics",
}
LEVEL = 0.9
# Up to this many entries of a vector or matrix are reported one by one.
MOST_ENTRIES = 100


class Clustering(NamedTuple):
    """What was clustered and found."""

    model: CoalescentClustering
    table: Table
    guessed: Guessed
    notes: tuple[str, ...]  # about the table
    warnings: tuple[str, ...]  # about the fit
    chosen_by: str  # how the number of clusters was chosen, in a sentence
    clusters: dict[str, Floats]  # how certain each cluster is
    summary: dict[str, Any]
    seconds: float


def cluster(
    data: Any,
    out: str | Path,
    *,
    id_column: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    header: bool | None = None,
    drop_missing: bool = False,
    columns: Any = "auto",
    dates: str = "days",
    scale: str = "auto",
    metric: str = "euclidean",
    random_state: int = 0,
    n_jobs: int = -1,
    overwrite: bool = False,
    verbose: int = 0,
    command: str = "",
    **settings: Any,
) -> Clustering:
    """Cluster the rows of a table and write the results into a folder, as ``coaltree cluster`` does.

    Parameters
    ----------
    data : path, DataFrame or array
        One row per object.
    out : path
        Folder to write; report.html in it explains the rest.
    id_column, features, drop, header, drop_missing
        Which parts of the table to use, as in `coaltree.reading.read_table`.
    columns, dates, scale
        Types and scale of the columns, as in `coaltree.cluster`.
    metric : str
        What rows are compared by, as in `coaltree.cluster`.
    random_state : int
        The same seed writes the same files.
    n_jobs : int
        Number of threads; the result does not depend on it.
    overwrite : bool
        Replace what this function wrote into the folder before.
    verbose : int
        1 shows what is being done.
    command : str
        The command that reproduces the results, for the report.
    **settings
        Other parameters of `CoalescentClustering`.

    Returns
    -------
    Clustering
        Its `model` is the fitted `CoalescentClustering`, its `summary` the contents of summary.json.
    """
    from coaltree.estimators.clustering import CoalescentClustering  # scikit-learn is slow to load
    from coaltree.estimators.distances import compared_by, is_precomputed, square_matrix

    started, out, progress = time.perf_counter(), Path(out), Progress(bool(verbose))
    if is_precomputed(metric) and not is_path(data):
        data = square_matrix(data)
    table = read_table(data, id_column, features, drop, header, drop_missing)
    with warnings_as_texts() as doubts:
        frame, compared = compared_by(table.frame, metric)
    table = Table(frame, (*table.notes, *compared))
    guessed = guess_columns(table.frame, columns, dates, scale)
    n, d = guessed.values.shape
    if (settings.get("n_clusters") or 0) > n:
        raise TableError(f"`n_clusters` {settings['n_clusters']} is more than the {n} rows.")
    check_free(out, overwrite)
    model = CoalescentClustering(columns=guessed, random_state=random_state, n_jobs=n_jobs, verbose=verbose, **settings)
    with claimed(out), replaced_folder(out, COMMAND) as folder:
        source = fingerprint_of_file(data)
        progress.say(f"{n:,} rows, {d:,} columns from {data if source['sha256'] else source['file']}.")
        notes = (*table.notes, *guessed.notes)
        for note in notes:
            progress.say(f"  {note}")
        with warnings_as_texts() as told:
            model.fit(table.frame)
        told[:0] = doubts
        for note in model.column_notes_[len(guessed.notes) :]:
            progress.say(f"  {note}")
            notes = (*notes, note)
        info = model.posterior_.info
        if not model.finished_:
            told.insert(
                0,
                f"Stopped early, after {info['iterations']} of {info['iterations_wanted']} iterations of each chain: "
                "results are of what was done by then.",
            )
        certain = clade_shares(model.posterior_, model.labels_)
        found = Clustering(model, table, guessed, notes, tuple(told), describe_choice(model), certain, {}, 0.0)
        found = found._replace(summary=provenance(COMMAND, command, random_state) | _summary(found, source, metric))
        with progress.timed("Writing"):
            _write(folder, found)
    return found._replace(seconds=time.perf_counter() - started)


# ---- what was found


def _summary(found: Clustering, source: dict[str, str | None], metric: str) -> dict[str, Any]:
    """Everything that determines the result and how far to trust it, as JSON values."""
    model, guessed = found.model, found.guessed
    post, info = model.posterior_, model.posterior_.info
    sizes, convergence = np.bincount(model.labels_ + 1), model.convergence_
    return {
        "table": {
            **source,
            "n_rows": len(guessed.values),
            "n_columns": len(guessed.columns.models),
            "features": list(guessed.columns.names),
            "kinds": {column.name: column.kind for column in guessed.columns.models},
            "notes": [*found.table.notes, *model.column_notes_],
        },
        "parameters": {
            "covariance": _written(info["covariance"] if model.covariance is None else model.covariance),
            "leaf_noise": _written(model.leaf_noise),
            "metric": metric,
            "standardised": guessed.standardised,
            "method": info["method"],
            "n_draws": len(post),
            **{name: info[name] for name in ("n_chains", "warmup", "thin", "iterations", "iterations_wanted")},
            "n_clusters": model.n_clusters,
        },
        "n_clusters": model.n_clusters_,
        "n_clusters_chosen_by": found.chosen_by,
        "n_clusters_alternatives": list(getattr(model, "n_clusters_alternatives_", ())),
        "n_clusters_evidence": evidence(model),
        "n_clusters_scores": {str(k): score for k, score in getattr(model, "cluster_scores_", {}).items()},
        "cluster_sizes": sizes[1:].tolist(),
        "clusters": [
            {"cluster": k, "size": int(size), **{name: float(values[k]) for name, values in found.clusters.items()}}
            for k, size in enumerate(sizes[1:])
        ],
        "n_outliers": int(sizes[0]),
        "finished": info["iterations"] == info["iterations_wanted"],
        "warnings": list(found.warnings),
        "converged": None if convergence is None else convergence.converged,
        "verdict": None if convergence is None else convergence.verdict,
        "convergence": None if convergence is None else convergence.as_dict(),
        **_covariance(model.compact_covariance_),
        "leaf_noise": float(np.median(model.leaf_noise_)),
        "compared": None if model.compare_ is None else {k: row._asdict() for k, row in model.compare_.items()},
        "learned": {name: _learned(values[:, model.warmup_ :]) for name, values in model.trace_.items()},
    }


def _written(value: Any) -> Any:
    """A parameter as a JSON value: text and numbers unchanged, arrays as lists, anything else as Python prints it."""
    return (
        value if isinstance(value, str | float | int) else np.asarray(value).tolist() if np.ndim(value) else str(value)
    )


def _covariance(phi: Floats) -> dict[str, Any]:
    """A full Φ as a matrix; a diagonal one, however wide, as its variances: one number if they are all equal."""
    if phi.ndim == 2 and not is_diagonal(phi):
        return {"covariance": phi.tolist()}
    variances = diagonal_of(phi)
    return {"variances": float(variances[0]) if np.all(variances == variances[0]) else variances.tolist()}


def _learned(draws: Floats) -> dict[str, Any]:
    """Medians of draws (C, I, …), how many, and the lowest effective sample size of an entry."""
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


def _write(folder: Path, found: Clustering) -> None:
    from coaltree.report.clustering import ClusteringResult, clustering_page
    from coaltree.report.columns import ColumnsResult

    model, guessed = found.model, found.guessed
    tree, post, labels, ids = model.tree_, model.posterior_, model.labels_, found.table.ids
    write_trees(folder, tree, post)
    post.save(folder / POSTERIOR)
    apart = separated(labels)
    n_cut = int(apart.max()) + 1
    if tree.n_leaves <= MOST_PAIRED:
        rows, together = np.arange(tree.n_leaves), post.coclustering(n_cut)
    else:
        rows = spread_rows(tree.leaf_order(), apart)
        together = sharing_of_rows(post, rows, n_cut)
    np.savez_compressed(folder / TOGETHER, probability=together.astype(np.float32), ids=np.array(ids)[rows])
    overlap = found.clusters["expected_overlap"]
    Rows(
        {
            "id": name,
            "cluster": int(label),
            "probability": f"{share:.4f}",
            "cluster_expected_overlap": "" if label < 0 else _four_digits(overlap[label]),
        }
        for name, label, share in zip(ids, labels, model.probabilities_, strict=True)
    ).to_csv(folder / LABELS)
    _linkage_rows(tree, post).to_csv(folder / LINKAGE)
    told = ColumnsResult(guessed.columns, guessed.values, model.splits())
    _split_rows(told, tree).to_csv(folder / SPLITS)
    write_summary(folder, found.summary)
    parameters = {name: value for name, value in shown_parameters(found.summary).items() if value is not None}
    digest = found.summary["table"]["sha256"]
    if digest is not None:
        parameters["SHA-256 of the table"] = f"{digest[:12]}…"
    result = ClusteringResult(
        title=found.summary["table"]["file"],
        tree=tree,
        posterior=post,
        X=guessed.values,
        features=guessed.columns.names,
        levels=tuple(column.levels for column in guessed.columns.models),
        told=told,
        n_clusters=model.n_clusters_,
        labels=labels,
        cut_order=model.cut_order_,
        chosen_by=found.chosen_by,
        trace=model.trace_,
        warmup=model.warmup_,
        parameters=parameters,
        command=found.summary["command_line"],
        scores=getattr(model, "cluster_scores_", {}),
        evidence=tuple(found.summary["n_clusters_evidence"]),
        notes=found.notes,
        warnings=found.warnings,
        convergence=model.convergence_,
        compared=model.compare_,
        surprise=model.surprise_,
    )
    clustering_page(result).write(folder / REPORT)


def _four_digits(share: float) -> str:
    return "" if np.isnan(share) else f"{share:.4f}"


def _linkage_rows(tree: Tree, posterior: TreePosterior) -> Rows:
    """The merges as in scipy, with how certain they are and intervals; for a single tree these are empty."""
    shares = clade_shares(posterior, tree)
    intervals = posterior.time_intervals(tree, LEVEL)
    low, high = intervals.T if len(posterior) > 1 else np.full_like(intervals, np.nan).T
    return Rows(
        {
            "left": int(left),
            "right": int(right),
            "time": when,
            "size": int(size),
            **{name: _four_digits(values[k]) for name, values in shares.items()},
            "time_low": float(low[k]),
            "time_high": float(high[k]),
        }
        for k, (left, right, when, size) in enumerate(tree.to_linkage().tolist())
    )


def _split_rows(told: ColumnsResult, tree: Tree) -> Rows:
    """One row per merge, in the order of linkage.csv, and column that sets its sides apart."""
    from coaltree.report.columns import split_words

    shares, apart = Shares(tree, told.columns, told.values), told.apart
    return Rows(
        {
            "merge": k,
            **dict(zip(("column", "left_against_right"), split_words(told, tree, shares, k, place), strict=True)),
            "size": f"{apart.size[k, place]:.4g}",
            "sure": f"{apart.sure[k, place]:.4f}",
        }
        for k in range(tree.n_leaves - 1)
        for place in range(apart.column.shape[1])
    )
