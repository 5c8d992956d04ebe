"""The results of a study of medical records, and of its model applied elsewhere, as folders that may be shared."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coaltree._version import __version__
from coaltree.errors import FolderError
from coaltree.results.folder import REPORT, SUMMARY, TREE, claimed, may_write_into, replaced_folder, write_summary

STUDY = "coaltree records study"
APPLY = "coaltree records apply"


def study(
    config: str | Path, out: str | Path, *, quick: bool = False, n_jobs: int = 1, verbose: int = 0
) -> dict[str, Any]:
    """Run a study and write its folder, as ``coaltree records study`` does; return its summary.

    Parameters
    ----------
    config : path
        TOML file with the study's settings.
    out : path
        Folder to write, to be shared; `private_folder(out)`, beside it, lets a study be resumed.
    quick : bool
        A first look: 3 folds, short chains, two baselines.
    n_jobs : int
        Number of parallel fits; -1 for all processors.
    verbose : int
        1 shows what is being done.
    """
    from coaltree.records.bundle import FILE
    from coaltree.records.config import load_config
    from coaltree.records.published import CONFIG, PUBLISHED, published_config
    from coaltree.records.review import summary_rows
    from coaltree.records.study import run_study
    from coaltree.report.records import draw_figures, write_report

    started, config, out = time.perf_counter(), Path(config), Path(out)
    settings = load_config(config)
    settings = settings.quick() if quick else settings
    with claimed(out):
        _begin(out, STUDY)
        result = run_study(settings, private_folder(out), n_jobs=n_jobs, progress=bool(verbose))
        with replaced_folder(out, STUDY, PUBLISHED) as folder:
            figures = draw_figures(result)
            _write_parts(folder, result.tables(), figures)
            if result.tree is not None:
                newick = result.tree.to_newick(support=result.support, digits=6)
                (folder / TREE).write_text(newick + "\n", encoding="utf-8")
            if result.model is not None:
                result.model.save(folder / FILE)
            write_report(result, figures, folder / REPORT)
            (folder / CONFIG).write_text(published_config(config), encoding="utf-8")
            summary = {
                "command": STUDY,
                "version": __version__,
                "status": "finished",
                "quick": quick,
                "seed": settings.seed,
                "seconds": round(time.perf_counter() - started, 1),
                "auroc": {
                    name.replace("-", "_"): {
                        row["method"]: row["auroc"] for row in summary_rows(comparison, settings.validation.level)
                    }
                    for name, comparison in result.comparisons().items()
                },
                "converged": result.facts["converged"],
                "verdict": result.facts["verdict"],
                "cost_node": None if result.separation is None else result.node_name(result.separation.best),
            }
            write_summary(folder, summary)
    return summary


def apply(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    source: str = "meds",
    threshold: str | None = None,
    columns: Mapping[str, str] | None = None,
    vocabulary: str | None = None,
    date_format: str | None = None,
    timezone: str | None = None,
    duplicates: str = "keep",
    schema: str | None = None,
) -> dict[str, Any]:
    """Score other patients with a study's model and write a folder, as ``coaltree records apply`` does.

    Parameters
    ----------
    model : path
        model.npz of a study, or the study's folder.
    data : path
        Records to score.
    out : path
        Folder to write, to be shared; `private_folder(out)`, beside it, gets a score for each subject.
    source : {"meds", "omop", "synpuf", "csv"}
        Layout of the records.
    threshold : str, optional
        Day 0: a date, a CSV with subject_id and date, or a MEDS label file. Default: index events.
    columns, vocabulary, date_format, timezone, duplicates, schema
        As in a study's `[data]`.

    Returns
    -------
    dict
        The contents of summary.json, and where the scores of subjects are.
    """
    from coaltree.records.bundle import apply_model
    from coaltree.records.config import DataConfig
    from coaltree.records.published import PUBLISHED
    from coaltree.records.review import summary_rows
    from coaltree.report.applying import draw_application, write_application

    out = Path(out)
    with claimed(out):
        _begin(out, APPLY)
        settings = DataConfig(
            path=str(Path(data).expanduser().resolve()),
            source=source,
            columns=None if columns is None else dict(columns),
            vocabulary=vocabulary,
            date_format=date_format,
            timezone=timezone,
            duplicates=duplicates,
            schema=schema,
        )
        found = apply_model(Path(model), settings, private_folder(out), threshold)
        means = [] if found.comparison is None else summary_rows(found.comparison, 0.95)
        with replaced_folder(out, APPLY, PUBLISHED) as folder:
            figures = draw_application(found)
            _write_parts(folder, found.tables(), figures)
            write_application(found, figures, folder / REPORT)
            summary = {
                "command": APPLY,
                "version": __version__,
                "status": "finished",
                "n_subjects": found.n_subjects,
                "auroc": {row["method"]: row["auroc"] for row in means},
                "known_codes": list(found.known_codes),
            }
            write_summary(folder, summary)
    return summary | {"scores": found.scores}


def _write_parts(folder: Path, tables: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
    """Write every table as CSV and every figure as PNG."""
    for name, rows in tables.items():
        rows.to_csv(folder / f"{name}.csv")
    for name, drawing in figures.items():
        drawing.savefig(folder / f"{name}.png", dpi=150)


def private_folder(out: str | Path) -> Path:
    """Return where patient rows are kept to resume a study: beside the results, so that these can be shared."""
    destination = Path(out).expanduser().resolve()
    return destination.with_name(f"{destination.name}-private")


def other_files(out: str | Path) -> list[str]:
    """Return the names of what is in a folder of results and is not of a kind that a study publishes."""
    from coaltree.records.published import PUBLISHED

    return sorted(file.name for file in Path(out).iterdir() if file.name not in PUBLISHED)


def _begin(out: Path, command: str) -> None:
    """Claim the output folder, so that an interrupted study can be resumed."""
    if out.exists() and any(out.iterdir()):
        if not may_write_into(out, command):
            raise FolderError(f"{out} exists and was not made by `{command}`. Choose another folder.")
        return
    out.mkdir(parents=True, exist_ok=True)
    # Written elsewhere and moved: a folder with half a summary could not be recognised.
    draft = private_folder(out)
    draft.mkdir(mode=0o700, exist_ok=True)
    draft /= SUMMARY
    draft.write_text(json.dumps({"command": command, "status": "unfinished"}) + "\n", encoding="utf-8")
    draft.replace(out / SUMMARY)
