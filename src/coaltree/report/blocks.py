"""The building blocks of a section: text, tables, figures, lists of facts, code, interactive widgets.

Every string given to these functions is plain text and is escaped, except the `markup`, `style` and `script` of
`widget`, which are the program's own.
"""

from __future__ import annotations

import base64
import io
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coaltree.errors import InputError
from coaltree.report.page import Block, embedded_json, escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LARGEST_SVG = 250_000  # bytes; beyond this a drawing is smaller as pixels
_PNG_DPI = 150
_PNG_COLOURS = 128
_NOTHING = "\N{EN DASH}"
_BOUND = re.compile(r"<(\d+)|(\d+)\+|withheld")  # a number that is not shown exactly


def text(*paragraphs: object) -> Block:
    """Paragraphs of plain text."""
    return Block("\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs))


def note(*paragraphs: object, kind: str = "advice") -> Block:
    """Paragraphs that must not be overlooked: `kind` is "advice", "warning" or "good"."""
    if kind not in ("advice", "warning", "good"):
        raise InputError(f'kind must be "advice", "warning" or "good", got {kind!r}.')
    return Block(f'<div class="note {kind}" role="note">{text(*paragraphs).html}</div>')


def bullets(items: Sequence[object]) -> Block:
    """A list of points."""
    return Block("<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>")


def code(source: str) -> Block:
    """A command or a program, to be copied."""
    return Block(f'<pre tabindex="0"><code>{escape(source)}</code></pre>')


def reproduce(command: str, call: str, citations: Sequence[str]) -> list[Block]:
    """How to reproduce a result, by its `command` or, without one, by the `call` in Python, and what to cite."""
    again = [text(f"The same call of {call} with the same data, version and seed gives the same results.")]
    if command:
        told = "The same command on the same data with the same version writes the same results:"
        again = [text(told), code(command)]
    return [*again, text("If this helps your work, please cite:"), bullets(citations)]


def facts(values: Mapping[str, object]) -> Block:
    """Names and their values, as a list of definitions."""
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(shown(value))}</dd></div>" for name, value in values.items()
    )
    return Block(f'<dl class="facts">{rows}</dl>')


def table(
    rows: Sequence[Mapping[str, Any]],
    caption: str,
    columns: Sequence[str] | None = None,
    formats: Mapping[str, str] | None = None,
    sortable: bool = True,
    stacked: bool = False,
) -> Block:
    """A table with a caption, which readers can sort by any column.

    Parameters
    ----------
    rows : sequence of mappings
        One mapping from column to value per row; a value that is missing, None or NaN shows as a dash.
    caption : str
        What the table shows.
    columns : sequence of str, optional
        Columns in order; by default those of the first row.
    formats : mapping from column to format, optional
        Format of the numbers of a column, for example ".2f" or ".0%"; four significant digits by default.
    sortable : bool
        Whether the headers are buttons that sort.
    stacked : bool
        Whether each row becomes a list of names and values on a narrow screen, rather than a table that scrolls.
    """
    columns = list(rows[0]) if columns is None and rows else list(columns or ())
    formats = formats or {}
    numeric = {name: all(_sort_key(row.get(name)) is not None for row in rows) for name in columns}
    head = "".join(_header(name, numeric[name], sortable and len(rows) > 1) for name in columns)
    body = "".join(
        "<tr>"
        + "".join(_cell(row.get(name), formats.get(name), numeric[name], name if stacked else None) for name in columns)
        + "</tr>"
        for row in rows
    )
    kind = ' class="stack"' if stacked else ""
    return Block(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table{kind}>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure(fig: Figure, alt: str, caption: str = "", pixels: bool = False) -> Block:
    """A matplotlib figure as an image inside the page: SVG if that is small, else PNG with up to 128 colours.

    Parameters
    ----------
    fig : Figure
        The figure; the same figure gives the same bytes.
    alt : str
        What the picture shows, for those who cannot see it.
    caption : str
        Text below the picture.
    pixels : bool
        Use PNG without trying SVG, for a figure with many thousands of lines.
    """
    kind, data = ("png", _as_png(fig)) if pixels else ("svg+xml", _as_svg(fig))
    if len(data) > _LARGEST_SVG and not pixels:
        kind, data = "png", _as_png(fig)
    encoded = base64.b64encode(data).decode("ascii")
    width = round(96 * fig.get_figwidth())
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return Block(
        f'<figure><img src="data:image/{kind};base64,{encoded}" alt="{escape(alt)}" width="{width}">{below}</figure>'
    )


def traces(trace: Mapping[str, Any], burn_in: int) -> Block:
    """Draws of learned quantities along the chains, {name: (n_chains, iterations, …)}, the first `burn_in` shaded."""
    from matplotlib.figure import Figure

    from coaltree.plots.curves import plot_traces  # matplotlib is heavy, and this package must import without it

    fig = Figure(figsize=(8.4, 1.9 * -(-len(trace) // 2)), layout="constrained")
    named = {name.replace("_", " "): values for name, values in trace.items()}
    plot_traces(named, burn_in, fig)
    return figure(
        fig,
        alt=f"Traces of {', '.join(named)} over the iterations; the table above gives their numbers.",
        caption="Every iteration's draw, one line per chain. Shaded: dropped as warm-up. ESS: effective number of "
        "independent draws.",
    )


def widget(markup: str, data: Any, script: str, style: str = "", name: str = "widget") -> Block:
    """An interactive element: markup, the script that runs it, and the data it needs.

    The markup is put into `<div class="widget" data-widget="name">` with the data beside it. The script calls
    `coaltree.widget(name, (root, data) => …)`, which runs once for every widget of that name in the page.

    Parameters
    ----------
    markup : str
        Trusted HTML.
    data : JSON value
        Passed to the script; arrays as packed by `coaltree.report.page.packed`.
    script, style : str
        Trusted; put into the page once, however many widgets use them.
    name : str
        Name under which the script registers.
    """
    holder = f'<script type="application/json">{embedded_json(data)}</script>'
    return Block(f'<div class="widget" data-widget="{escape(name)}">{holder}\n{markup}</div>', style, script)


def shown(value: object, spec: str | None = None) -> str:
    """A value as a reader sees it: numbers to four significant digits unless a format is given."""
    if _missing(value):
        return _NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Number) and spec is not None:
        return format(value, spec)
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}"
    if isinstance(value, numbers.Real):
        number = float(value)
        return f"{number:,.0f}" if 1e4 <= abs(number) < 1e15 else f"{number:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(item) for item in value)
    return str(value)


def _as_svg(fig: Figure) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "coaltree"}):
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _as_png(fig: Figure) -> bytes:
    from PIL import Image  # matplotlib needs it too

    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=_PNG_DPI)
    image = Image.open(buffer).convert("RGB").quantize(_PNG_COLOURS, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _header(name: str, numeric: bool, sortable: bool) -> str:
    kind = ' class="number"' if numeric else ""
    if not sortable:
        return f'<th scope="col"{kind}>{escape(name)}</th>'
    return f'<th scope="col" aria-sort="none"{kind}><button type="button" class="sort">{escape(name)}</button></th>'


def _cell(value: Any, spec: str | None, numeric: bool, label: str | None) -> str:
    named = "" if label is None else f' data-label="{escape(label)}"'
    if numeric:
        return f'<td class="number" data-value="{_sort_key(value)}"{named}>{escape(shown(value, spec))}</td>'
    return f"<td{named}>{escape(shown(value, spec))}</td>"


def _sort_key(value: Any) -> str | None:
    """Sort key of a cell in a column of numbers, as the script reads it; None for text."""
    if _missing(value):
        return ""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return repr(float(value)).replace("inf", "Infinity")
    bound = _BOUND.fullmatch(value) if isinstance(value, str) else None
    return None if bound is None else bound[1] or bound[2] or ""


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, numbers.Real) and value != value)
