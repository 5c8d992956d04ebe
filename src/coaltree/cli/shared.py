"""Shared by the commands: how errors and files are reported, and the command that reproduces a result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer

from coaltree.errors import FolderError, TableError


@contextmanager
def told(tables: str) -> Iterator[None]:
    """Report errors with the option they concern, `tables` if it is a table."""
    try:
        yield
    except FolderError as error:
        raise typer.BadParameter(str(error), param_hint="--out") from error
    except TableError as error:
        raise typer.BadParameter(str(error), param_hint=tables) from error
    except ValueError as error:  # the library names the argument and the fix
        raise typer.BadParameter(str(error)) from error


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
