"""`coaltree records`: simulate a cohort, import records, run a study, apply its model elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
) -> None:
    """Simulate a cohort with a known outcome tree, as MEDS, with the truth and a study's config beside it."""
    from coaltree.records.simulate import simulate_cohort

    with _plain_errors():
        simulate_cohort(out, subjects, seed, factors, events_per_year, progress=True, hospital=hospital)
        typer.echo(f"Wrote {subjects:,} subjects to {out}. Next: coaltree records study {out}/study.toml --out results")


@app.command(name="import")
def _import(
    path: Annotated[Path, typer.Argument(help="Folder or file to read.")],
    out: Annotated[Path, typer.Option(help="MEDS folder to write; replaced if an earlier import made it.")],
    source: Annotated[Source, typer.Option(help="Layout of the source.")],
    vocabulary: Annotated[str | None, typer.Option(help="Vocabulary of bare codes in a CSV file, e.g. ICD9.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Column of a CSV file, e.g. subject=patient; repeat for date, code, cost.")
    ] = None,
    date_format: Annotated[str | None, typer.Option(help="Format of dates in a CSV file, e.g. %d/%m/%Y.")] = None,
    timezone: Annotated[str | None, typer.Option(help="Zone whose local time to store, e.g. Europe/Paris.")] = None,
    duplicates: Annotated[Duplicates, typer.Option(help="Exact copies of events.")] = Duplicates.keep,
    schema: Annotated[str | None, typer.Option(help="Schema of an OMOP database file.")] = None,
) -> None:
    """Convert records to MEDS with codes in one spelling; rows that cannot be read are listed in rejected.csv."""
    from coaltree.records.errors import RecordsError
    from coaltree.records.importer import import_summary
    from coaltree.records.omop import import_omop
    from coaltree.records.sources import import_csv, import_meds, import_synpuf

    with _plain_errors():
        wrong = [text for text in column or [] if "=" not in text]
        if wrong:
            raise RecordsError(f"--column {wrong[0]} must have the form subject=patient_id.")
        columns = dict(text.split("=", 1) for text in column or []) or None
        if source is Source.meds:
            import_meds(path, out, timezone, duplicates.value)
        elif source is Source.omop:
            import_omop(path, out, timezone, duplicates.value, schema=schema)
        elif source is Source.synpuf:
            import_synpuf(path, out, duplicates.value)
        else:
            import_csv(path, out, columns, vocabulary, date_format, timezone, duplicates.value)
        summary = import_summary(out)
    typer.echo(f"{summary['n_events']:,} events of {summary['n_subjects']:,} subjects written to {out}.")
    copies = summary["duplicates"]
    verb = "dropped" if copies["policy"] == "drop" else "kept"
    typer.echo(f"{copies['exact_copies']:,} exact copies of events {verb}.")
    if summary["rejected"]:
        typer.echo(f"Rejected, listed in {out / 'rejected.csv'}:")
        for reason, n in summary["rejected"].items():
            typer.echo(f"  {n:8,}  {reason}")
    if summary["irregular_codes"]["number"]:
        shown = ", ".join(summary["irregular_codes"]["first"][:5])
        typer.echo(f"{summary['irregular_codes']['number']} codes do not look like their vocabulary, kept: {shown} ..")
    for note in summary["notes"]:
        typer.echo(note)


@app.command(name="study")
def _study(
    config: Annotated[Path, typer.Argument(help="TOML file with the study's settings.")],
    out: Annotated[
        Path,
        typer.Option(help="Folder to write, to be shared; OUT-private, beside it, lets a study be resumed."),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="A first look: 3 folds, short chains, two baselines.")] = False,
    jobs: Annotated[int, typer.Option(help="Fits side by side; -1 for all processors.")] = 1,
) -> None:
    """Run a study: cohort, features, outcomes, validation, cost; one folder, one report.html."""
    from coaltree.results.records import private_folder, study

    with _plain_errors():
        summary = study(config, out, quick=quick, n_jobs=jobs, verbose=1)
    for name, means in summary["auroc"].items():
        typer.echo(f"Mean area under the ROC curve, {name.replace('_', '-')}:")
        for method, value in means.items():
            typer.echo(f"  {method:<20} {value:.3f}")
    typer.echo(f"Wrote {out / 'report.html'}. {private_folder(out)} names patients: do not share it.")


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
    vocabulary: Annotated[str | None, typer.Option(help="Vocabulary of bare codes in a CSV file, e.g. ICD9.")] = None,
    timezone: Annotated[str | None, typer.Option(help="Zone whose local time to store, e.g. Europe/Paris.")] = None,
    schema: Annotated[str | None, typer.Option(help="Schema of an OMOP database file.")] = None,
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
            vocabulary=vocabulary,
            timezone=timezone,
            schema=schema,
        )
    for value in summary["auroc"].values():
        typer.echo(f"Mean area under the ROC curve, external validation: {value:.3f}")
    known, wanted = summary["known_codes"]
    typer.echo(f"{summary['n_subjects']:,} subjects scored; {known} of {wanted} codes occur here.")
    typer.echo(f"Wrote {out / 'report.html'}. {summary['scores']} has a row for each patient: do not share it.")
