"""Tables of benchmarks/*.md in the pages, copied at build: numbers cannot drift from what was measured.

The directive `{benchmark} learning.md` shows the first table of a file. Options choose: `:section: noise` the table
below a heading with that text, `:rows: iris; wine` rows by their first cell, `:where: n = 128` rows by the value of a
column, `:columns: tree, ARI area` columns.
"""

from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).parents[2] / "benchmarks"


def read_tables(text):
    """Return the tables of a Markdown text: (heading above, header cells, rows of cells)."""
    found, heading, lines = [], "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        if len(lines) > 2:
            found.append((heading, lines[0], lines[2:]))
        lines = []
        if line.startswith("#"):
            heading = line.lstrip("# ")
    return found


def split(text, separator):
    """Return the parts of an option."""
    return [part.strip() for part in text.split(separator)]


def select(tables, section=None, rows=None, where=None, columns=None):
    """Return header and rows of the wanted part of one table; ValueError if something is not there."""
    wanted = [table for table in tables if section is None or section in table[0]]
    if not wanted:
        raise ValueError(f"no table below a heading with {section!r}.")
    _, header, body = wanted[0]
    if rows is not None:
        names = split(rows, ";")
        by_name = {row[0]: row for row in reversed(body)}
        missing = [name for name in names if name not in by_name]
        if missing:
            raise ValueError(f"no row {missing[0]!r} among {', '.join(by_name)}.")
        body = [by_name[name] for name in names]
    if where is not None:
        column, value = split(where, "=")
        body = [row for row in body if row[header.index(column)] == value]
        if not body:
            raise ValueError(f"no row with {where}.")
    chosen = range(len(header)) if columns is None else [header.index(name) for name in split(columns, ",")]
    return [header[i] for i in chosen], [[row[i] for i in chosen] for row in body]


class Benchmark(SphinxDirective):
    """Show a part of a table of benchmarks."""

    required_arguments = 1
    option_spec: ClassVar = dict.fromkeys(("section", "rows", "where", "columns"), directives.unchanged_required)

    def run(self):
        """Parse the selected rows as Markdown."""
        file = FOLDER / self.arguments[0]
        self.env.note_dependency(str(file))
        try:
            header, rows = select(read_tables(file.read_text(encoding="utf-8")), **self.options)
        except ValueError as error:
            raise self.error(f"{file.name}: {error}") from error
        lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
        container = nodes.container(classes=["benchmark"])
        self.state.nested_parse(StringList(lines, source=str(file)), self.content_offset, container)
        return [container]


def setup(app):
    """Register the directive."""
    app.add_directive("benchmark", Benchmark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
