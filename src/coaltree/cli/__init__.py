"""The `coaltree` command: arguments in, exit codes out. The work is done by the modules it calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coaltree._version import __version__
from coaltree.cli import demo, records
from coaltree.cli.folder import FolderError

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
    out: Annotated[Path, typer.Option(help="Folder to write; replaced if an earlier demo made it.")] = Path(
        "coaltree-demo"
    ),
    particles: Annotated[int, typer.Option(min=2, max=100_000, help="Trees per posterior.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same files.")] = 0,
) -> None:
    """Sample the trees of 30 iris flowers, draw them and say which branches to trust."""
    try:
        demo.run(out, particles, seed)
    except FolderError as error:
        raise typer.BadParameter(str(error), param_hint="--out") from error


app.add_typer(records.app, name="records")


def main() -> None:
    """Run the command line."""
    app(prog_name="coaltree")
