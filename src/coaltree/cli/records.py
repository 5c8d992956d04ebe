"""`coaltree records`: simulate a cohort, import records, run a study, apply its model elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coaltree.cli.shared import QUIET, show_verdict
from coaltree.errors import CoaltreeError

app = typer.Typer(help="Medical records: from dated codes to a study of outcomes and costs.", no_args_is_help=True)


class Source(StrEnum):
    """Layouts that can be imported."""

    meds = "meds"
    omop = "omop"
    synpuf = "synpuf"
    csv = "csv"


class Duplicates(StrEnum):
    """What to do with exact copies of events."""

    keep = "keep"
    drop = "drop"


# How records are read: the same for `import` and `apply`.
_Vocabulary = Annotated[str | None, typer.Option(help="Vocabulary of bare codes in a CSV file, e.g. ICD9.")]
_Column = Annotated[
    list[str] | None, typer.Option(help="Column of a CSV file, e.g. subject=patient; repeat for date, code, cost.")
]
_DateFormat = Annotated[str | None, typer.Option(help="Format of dates in a CSV file, e.g. %d/%m/%Y.")]
_Timezone = Annotated[str | None, typer.Option(help="Zone whose local time to store, e.g. Europe/Paris.")]
_Duplicates = Annotated[Duplicates, typer.Option(help="Exact copies of events.")]
_Schema = Annotated[str | None, typer.Option(help="Schema of an OMOP database file.")]
_Quiet = Annotated[bool, typer.Option("--quiet", help=QUIET)]


def _columns(given: list[str] | None) -> dict[str, str] | None:
    """Return columns given as subject=patient_id."""
    from coaltree.records.errors import RecordsError

    wrong = [text for text in given or [] if "=" not in text]
    if wrong:
        raise RecordsError(f"--column {wrong[0]} must have the form subject=patient_id.")
    return dict(text.split("=", 1) for text in given or []) or None


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Report an error in one line and exit with code 2."""
    try:
        yield
    except (CoaltreeError, ImportError, OSError) as error:
        typer.secho(f"Error: {error}", err=True, fg="red")
        raise typer.Exit(2) from error


@app.command(name="simulate")
def _simulate(
    out: Annotated[Path, typer.Option(help="Folder to write; it must be empty or new.")],
    subjects: Annotated[int, typer.Option(min=10, help="Number of subjects.")] = 19_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same data.")] = 1,
    factors: Annotated[int, typer.Option(min=2, help="Groups of codes.")] = 25,
    events_per_year: Annotated[float, typer.Option(min=1.0, help="Ordinary codes of a subject in a year.")] = 90.0,
    hospital: Annotated[
        int, typer.Option(min=0, help="Another number: the same outcomes, other patients and habits of coding.")
    ] = 0,
    quiet: _Quiet = False,
) -> None:
    """Simulate a cohort with a known outcome tree, as MEDS, with the truth and a study's config beside it."""
    from coaltree.records.simulate import simulate_cohort

    with _plain_errors():
        simulate_cohort(out, subjects, seed, factors, events_per_year, progress=not quiet, hospital=hospital)
    if not quiet:
        typer.echo(f"Wrote {subjects:,} subjects to {out}. Next: coaltree records study {out}/study.toml --out results")


@app.command(name="import")
def _import(
    path: Annotated[Path, typer.Argument(help="Folder or file to read.")],
    out: Annotated[Path, typer.Option(help="MEDS folder to write; replaced if an earlier import made it.")],
    source: Annotated[Source, typer.Option(help="Layout of the source.")],
    vocabulary: _Vocabulary = None,
    column: _Column = None,
    date_format: _DateFormat = None,
    timezone: _Timezone = None,
    duplicates: _Duplicates = Duplicates.keep,
    schema: _Schema = None,
    quiet: _Quiet = False,
) -> None:
    """Convert records to MEDS with codes in one spelling; rows that cannot be read are listed in rejected.csv."""
    from coaltree.records.importer import import_summary
    from coaltree.records.omop import import_omop
    from coaltree.records.sources import import_csv, import_meds, import_synpuf

    with _plain_errors():
        columns = _columns(column)
        if source is Source.meds:
            import_meds(path, out, timezone, duplicates.value)
        elif source is Source.omop:
            import_omop(path, out, timezone, duplicates.value, schema=schema)
        elif source is Source.synpuf:
            import_synpuf(path, out, duplicates.value)
        else:
            import_csv(path, out, columns, vocabulary, date_format, timezone, duplicates.value)
        summary = import_summary(out)
    if not quiet:
        typer.echo(f"{summary['n_events']:,} events of {summary['n_subjects']:,} subjects written to {out}.")
        copies = summary["duplicates"]
        verb = "dropped" if copies["policy"] == "drop" else "kept"
        typer.echo(f"{copies['exact_copies']:,} exact copies of events {verb}.")
    if summary["rejected"]:
        typer.echo(f"Rejected, listed in {out / 'rejected.csv'}:", err=quiet)
        for reason, n in summary["rejected"].items():
            typer.echo(f"  {n:8,}  {reason}", err=quiet)
    if summary["irregular_codes"]["number"]:
        shown = ", ".join(summary["irregular_codes"]["first"][:5])
        number = summary["irregular_codes"]["number"]
        typer.echo(f"{number} codes do not look like their vocabulary, kept: {shown} ..", err=quiet)
    for note in (*summary["notes"], *summary["advice"]):
        typer.echo(note, err=quiet)


@app.command(name="study")
def _study(
    config: Annotated[Path, typer.Argument(help="TOML file with the study's settings.")],
    out: Annotated[
        Path,
        typer.Option(help="Folder to write, to be shared; OUT-private, beside it, lets a study be resumed."),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="A first look: 3 folds, short chains, two baselines.")] = False,
    jobs: Annotated[int, typer.Option(help="Fits side by side; -1 for all processors.")] = 1,
    quiet: _Quiet = False,
) -> None:
    """Run a study: cohort, features, outcomes, validation, cost; one folder, one report.html."""
    from coaltree.results.records import private_folder, study

    with _plain_errors():
        summary = study(config, out, quick=quick, n_jobs=jobs, verbose=0 if quiet else 1)
    if not quiet:
        for name, means in summary["auroc"].items():
            typer.echo(f"Mean area under the ROC curve, {name.replace('_', '-')}:")
            for method, value in means.items():
                typer.echo(f"  {method:<20} {value:.3f}")
    show_verdict(summary["verdict"], summary["converged"], quiet)
    if not quiet:
        typer.echo(f"Wrote {out / 'report.html'}. {private_folder(out)} names patients: do not share it.")
    _tell_others(out)


@app.command(name="apply")
def _apply(
    model: Annotated[Path, typer.Argument(help="model.npz of a study, or the study's folder.")],
    data: Annotated[Path, typer.Argument(help="Records to score: folder or file.")],
    out: Annotated[
        Path, typer.Option(help="Folder to write, to be shared; OUT-private, beside it, gets a score for each subject.")
    ],
    source: Annotated[Source, typer.Option(help="Layout of the records.")] = Source.meds,
    threshold: Annotated[
        str | None,
        typer.Option(
            help="Day 0: a date, a CSV with subject_id and date, or a MEDS label file. Default: index events."
        ),
    ] = None,
    vocabulary: _Vocabulary = None,
    column: _Column = None,
    date_format: _DateFormat = None,
    timezone: _Timezone = None,
    duplicates: _Duplicates = Duplicates.keep,
    schema: _Schema = None,
    quiet: _Quiet = False,
) -> None:
    """Score other patients with a study's model and, where their outcomes are known, validate it."""
    from coaltree.results.records import apply

    with _plain_errors():
        summary = apply(
            model,
            data,
            out,
            source=source.value,
            threshold=threshold,
            columns=_columns(column),
            vocabulary=vocabulary,
            date_format=date_format,
            timezone=timezone,
            duplicates=duplicates.value,
            schema=schema,
        )
    if not quiet:
        for value in summary["auroc"].values():
            typer.echo(f"Mean area under the ROC curve, external validation: {value:.3f}")
        known, wanted = summary["known_codes"]
        typer.echo(f"{summary['n_subjects']:,} subjects scored; {known} of {wanted} codes occur here.")
        typer.echo(f"Wrote {out / 'report.html'}. {summary['scores']} has a row for each patient: do not share it.")
    _tell_others(out)


def _tell_others(out: Path) -> None:
    """Name what else is in a folder that is to be shared."""
    from coaltree.results.records import other_files

    if others := other_files(out):
        typer.secho(f"Not of this study, look before you share {out}: {', '.join(others)}", err=True, fg="yellow")
