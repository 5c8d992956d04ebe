"""Docstrings are written to be read in the source; this turns them into reStructuredText before numpydoc sees them.

- An indented block is shown as it stands, a Markdown table as a table.
- Bars and stars of formulas, |Φ| and v*, are not markup.
- Fields of named tuples and dataclasses that are explained by a comment behind them are listed as attributes.
"""

import inspect
import re

FIELD = re.compile(r"^    (\w+): (.+?)(?: = .+?)?  # (.+)$", flags=re.MULTILINE)
ARRAYS = {"Floats": "ndarray", "FloatArray": "ndarray", "Ints": "ndarray of int", "IntArray": "ndarray of int"}
EMPHASIS = re.compile(r"(\*\*?[^\s*](?:[^*\n]*[^\s*])?\*\*?(?!\w)|``[^`]+``|`[^`]+`|\S*(?<!`)[|*]\S*)")
SECTION = re.compile(r"^-{3,}$")


def escape(line):
    """Put a backslash before bars and stars that are not markup."""

    def mark(match):
        text = match[0]
        if text.startswith("`") or (text.startswith("*") and text.endswith("*")):
            return text
        return re.sub(r"(?<!\\)([|*])", r"\\\1", text)

    return EMPHASIS.sub(mark, line)


def table(rows):
    """Turn the lines of a Markdown table into a list-table."""
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    out = [".. list-table::", "   :header-rows: 1", ""]
    for row in [cells[0], *cells[2:]]:
        out += [f"   {'*' if not i else ' '} - {escape(cell)}" for i, cell in enumerate(row)]
    return [*out, ""]


def rewrite(lines):
    """Return a docstring as reStructuredText."""
    out, at, in_section = [], 0, False
    while at < len(lines):
        line = lines[at]
        block = at
        if SECTION.match(line):
            in_section = True
        if line.startswith("|"):
            while block < len(lines) and lines[block].startswith("|"):
                block += 1
            out += table(lines[at:block])
        elif line.startswith((">>>", "...")):
            while block < len(lines) and lines[block].strip():
                block += 1
            out += lines[at:block]
        elif line.startswith("    ") and not in_section and (not out or not out[-1].strip()):
            while block < len(lines) and (lines[block].startswith("    ") or not lines[block].strip()):
                block += 1
            out += ["::", "", *lines[at:block]]
        else:
            out.append(escape(line))
            block = at + 1
        at = block
    return out


def fields(cls):
    """Return the section that lists fields explained by comments."""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return []
    found = FIELD.findall(source.partition("\n    def ")[0])
    if not found:
        return []
    section = ["", "Attributes", "----------"]
    for name, kind, meaning in found:
        section += [f"{name} : {ARRAYS.get(kind, kind)}", f"    {meaning}"]
    return [*section, ""]


def process(app, what, name, obj, options, lines):
    """Rewrite the lines in place."""
    new = rewrite(lines)
    if what == "class" and not any(line == "Attributes" for line in lines):
        new += fields(obj)
    lines[:] = new


def skip(app, what, name, obj, skipped, options):
    """Leave out what says nothing: fields of tuples, which `fields` lists, and methods that scikit-learn adds."""
    text = inspect.getdoc(obj) or ""
    if text.startswith("Alias for field number") or re.fullmatch(r"set_\w+_request", name):
        return True
    return None


def setup(app):
    """Come before numpydoc."""
    app.connect("autodoc-process-docstring", process, priority=400)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
