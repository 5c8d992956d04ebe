"""Shared by the commands: how errors and files are reported, and the command that reproduces a result."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer

from coaltree._compile import compiling_aloud
from coaltree.errors import FolderError, TableError

QUIET = "Print nothing but errors and warnings."
# Arguments of Python whose options have other names.
_OPTIONS = {"n_folds": "folds", "n_iter": "iterations"}


def in_options(message: str, context: typer.Context) -> str:
    """Name options where a message of the library names its arguments: `drop`, or `overwrite=True`."""
    known = {str(each.name): each for each in context.command.params}

    def option(found: re.Match[str]) -> str:
        parameter = known.get(_OPTIONS.get(found[1], found[1]))
        if parameter is None or parameter.param_type_name == "argument":
            return found[0]
        return (parameter.secondary_opts if found[2] == "False" else parameter.opts)[0]

    return re.sub(r"`(\w+)(?:=(True|False))?`", option, message)


def usual_folder(table: Path) -> Path:
    """Where the results of a table go by default: NAME-coaltree in the present folder."""
    return Path(f"{table.stem}-coaltree")


@contextmanager
def told(tables: str, context: typer.Context, quiet: bool = False) -> Iterator[None]:
    """Report errors with the option they concern, `tables` if it is a table, and what is compiled unless `quiet`."""
    try:
        with compiling_aloud(not quiet):
            yield
    except ValueError as error:  # the library names the argument and the fix
        hint = "--out" if isinstance(error, FolderError) else tables if isinstance(error, TableError) else None
        raise typer.BadParameter(in_options(str(error), context), param_hint=hint) from error


def check_jobs(jobs: int) -> int:
    """Refuse 0 threads."""
    if jobs == 0:
        raise typer.BadParameter("must be -1 or at least 1.")
    return jobs


def list_files(out: Path, meaning: Mapping[str, str], seconds: float | None = None) -> None:
    """List what was written."""
    typer.echo(f"\nWrote to {out}{'' if seconds is None else f' in {seconds:.0f} s'}:")
    for name, text in meaning.items():
        if (out / name).exists():
            typer.echo(f"  {name:<18} {text}")


def show_verdict(verdict: str, converged: bool, quiet: bool = False) -> None:
    """Print what the chains say about themselves, as Python and the report do; if `quiet`, only if it is bad."""
    if not (quiet and converged):
        typer.secho(verdict, fg=None if converged else typer.colors.YELLOW, err=quiet)


def command_line(context: typer.Context) -> str:
    """Return the command that reproduces this result: the options given, and the seed."""
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
