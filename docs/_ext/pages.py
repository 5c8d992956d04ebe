"""Pages are plain Markdown, which a forge shows as it stands. What they copy from elsewhere is copied by this.

`python docs/_ext/pages.py` writes into docs/*.md what stands between a comment of this kind and the next "end of copy":

    <!-- copy of: benchmark learning.md
    section: noise -->

- `benchmark FILE`: a table of benchmarks/FILE, the first one unless `section`, `rows`, `where` and `columns` choose
  (see `select`).
- `command WORDS`: arguments and options of a command of coaltree.
- `written MODULE`: the files that a command writes, from the list that it prints itself.
- `walk NAME`: the way of data through the package, as recorded by `walks.py`.

It also draws the pictures of docs/figures into docs/images (`python docs/_ext/pages.py pictures`), and turns what only
Sphinx shows (roles, links beginning with "repo:", links to built guides) into plain Markdown.

When the pages are built, the extension does the opposite where Sphinx can do more: names in backticks become links to
the reference, links to guides lead to the executed ones, links to files of the repository to the forge, and pictures
are drawn anew.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
REPOSITORY = DOCS.parent
COPY = re.compile(r"<!-- copy of: (.*?) -->\n(.*?)<!-- end of copy -->", flags=re.DOTALL)
FENCE = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)
CONTENTS = re.compile(r"<!-- contents\n(.*?)-->", flags=re.DOTALL)

# ---- tables of benchmarks


def read_tables(text: str) -> list[tuple[str, list[str], list[list[str]]]]:
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


def _split(text: str, separator: str) -> list[str]:
    return [part.strip() for part in text.split(separator)]


def select(
    tables: list[tuple[str, list[str], list[list[str]]]],
    section: str | None = None,
    rows: str | None = None,
    where: str | None = None,
    columns: str | None = None,
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the wanted part of one table; ValueError if something is not there.

    `section` chooses the table below a heading with that text, `rows` ("iris; wine") rows by their first cell, `where`
    ("n = 128") rows by the value of a column, `columns` ("tree, ARI area") columns.
    """
    wanted = [table for table in tables if section is None or section in table[0]]
    if not wanted:
        raise ValueError(f"no table below a heading with {section!r}.")
    _, header, body = wanted[0]
    if rows is not None:
        names = _split(rows, ";")
        by_name = {row[0]: row for row in reversed(body)}
        missing = [name for name in names if name not in by_name]
        if missing:
            raise ValueError(f"no row {missing[0]!r} among {', '.join(by_name)}.")
        body = [by_name[name] for name in names]
    if where is not None:
        column, value = _split(where, "=")
        body = [row for row in body if row[header.index(column)] == value]
        if not body:
            raise ValueError(f"no row with {where}.")
    chosen = range(len(header)) if columns is None else [header.index(name) for name in _split(columns, ",")]
    return [header[i] for i in chosen], [[row[i] for i in chosen] for row in body]


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def copy_benchmark(file: str, **options: str) -> list[str]:
    """Return a part of a table of benchmarks."""
    return _table(*select(read_tables((REPOSITORY / "benchmarks" / file).read_text(encoding="utf-8")), **options))


# ---- commands


def find_command(words: list[str]) -> Any:
    """Return the click command that `coaltree WORDS` runs."""
    import typer

    from coaltree.cli import app

    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    return command


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or callable(value) or value is False or value == ():
        return "required" if parameter.required else ""
    value = getattr(value, "value", value)
    return "on" if value is True else f"`{value}`"


def _choices(parameter: Any) -> str:
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)  # typer since 0.26
    found = list(kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()
    found = found or getattr(getattr(parameter, "type", None), "choices", None) or ()
    return " One of " + ", ".join(f"`{getattr(each, 'value', each)}`" for each in found) + "." if found else ""


def copy_command(*words: str) -> list[str]:
    """Return what a command does, and a table of its arguments and options."""
    command = find_command(list(words))
    rows = []
    for parameter in command.params:
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            names = f"`{parameter.name.upper()}`"
        else:
            names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        text = " ".join(f"{parameter.help}{_choices(parameter)}".split()).replace("|", "\\|")
        rows.append([names, text, _default(parameter)])
    return [command.help.strip(), "", *_table(["option", "what it does", "default"], rows)]


def copy_written(module: str) -> list[str]:
    """Return the files that a command writes."""
    meaning = importlib.import_module(module).MEANING
    return _table(["file", "what it is"], [[f"`{name}`", text] for name, text in meaning.items()])


def copy_walk(name: str) -> list[str]:
    """Return a recorded walk as a table."""
    sys.path.insert(0, str(Path(__file__).parent))
    import walks

    return walks.show(json.loads(walks.RECORDED.read_text(encoding="utf-8"))[name])


COPIED = {"benchmark": copy_benchmark, "command": copy_command, "written": copy_written, "walk": copy_walk}


def copied(said: str) -> list[str]:
    """Return the lines of a copy from what its comment says."""
    first, *options = said.splitlines()
    kind, *words = first.split()
    return COPIED[kind](*words, **dict(_split(option, ": ") for option in options))


# ---- pages

ROLE = re.compile(r"\{py:\w+\}(`[^`]+`)")


def as_markdown(text: str) -> str:
    """Return a page as plain Markdown, with its copies up to date."""
    text = ROLE.sub(r"\1", text)
    text = re.sub(r"\]\(repo:([^)]+)\)", r"](../\1)", text)
    text = re.sub(r"\]\(auto_examples/(\w+)\.rst\)", r"](../examples/\1.py)", text)
    return COPY.sub(
        lambda found: "\n".join([f"<!-- copy of: {found[1]} -->", "", *copied(found[1]), "", "<!-- end of copy -->"]),
        text,
    )


def pages() -> list[Path]:
    """Return the pages that people write."""
    return sorted(DOCS.glob("*.md"))


def as_sphinx(text: str) -> str:
    """Return a page as it is built."""
    text = CONTENTS.sub(r"\1", text)
    text = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](auto_examples/\1.rst)", text)
    text = re.sub(r"\]\(\.\./([^)]+)\)", r"](repo:\1)", text)
    text = re.sub(r"\]\(images/(\w+)\.png\)", _drawn, text)
    parts, at = [], 0
    for fence in [*FENCE.finditer(text), None]:  # names in code stay
        end = fence.start() if fence else len(text)
        parts.append(re.sub(r"(?<![\[`}])(`coaltree(?:\.\w+)+`)", r"{py:obj}\1", text[at:end]))
        if fence:
            parts.append(fence[0])
            at = fence.end()
    return "".join(parts)


def _drawn(found: re.Match[str]) -> str:
    return f"](auto_pictures/{found[1]}.png)" if (DOCS / "figures" / f"{found[1]}.py").exists() else found[0]


def _read(app: Any, name: str, source: list[str]) -> None:
    if (DOCS / f"{name}.md").exists() and "/" not in name:
        source[0] = as_sphinx(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Change pages as they are read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main(what: list[str]) -> None:
    """Bring pages up to date, or draw the pictures."""
    if what == ["pictures"]:
        sys.path.insert(0, str(Path(__file__).parent))
        import pictures

        pictures.draw_into(DOCS / "images", resolution=90)
        return
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := as_markdown(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(page.relative_to(REPOSITORY))


if __name__ == "__main__":
    main(sys.argv[1:])
