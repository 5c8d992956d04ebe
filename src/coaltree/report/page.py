"""One self-contained HTML page, built section by section.

    from coaltree.report.blocks import code, facts, figure, table, text
    from coaltree.report.page import Page

    page = Page("Flowers", subtitle="150 rows, 4 columns")
    page.section(
        "What was found",
        text("Three clusters.", "The second paragraph."),
        table([{"cluster": 1, "size": 50}, {"cluster": 2, "size": 100}], caption="Clusters"),
        figure(fig, alt="Scatter plot: three separate clouds.", caption="The data."),
    )
    page.section("Parameters", facts({"seed": 0, "particles": 50}), code("coaltree cluster flowers.csv"))
    page.write("report.html")

A section has a heading, an entry in the contents and any number of blocks; `coaltree.report.blocks` makes them, and
every text given to a block is escaped there. A block may have its own style sheet and script (`widget`); each is put
into the page once, however many blocks use it. The page blocks network access: its content security policy allows
images only as data and scripts only by their hash, so that nothing in a label can run or load.

Data for a script are embedded as JSON in the page. `packed` turns an array into JSON that `coaltree.unpack` in the
page turns into a typed array, in four bytes of text for three of data.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._version import __version__
from coaltree.errors import InputTypeError

_DTYPES = {"uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "float32": "f4", "float64": "f8"}


@dataclass(frozen=True)
class Block:
    """A piece of a page: trusted HTML, and the style sheet and script it needs."""

    html: str
    style: str = ""
    script: str = ""


@dataclass
class Page:
    """A page under construction.

    Parameters
    ----------
    title : str
        Title of the page and of the window.
    subtitle : str
        One line below the title.
    """

    title: str
    subtitle: str = ""
    _sections: list[tuple[str, str, tuple[Block, ...]]] = field(default_factory=list, repr=False)

    def section(self, heading: str, *blocks: Block) -> None:
        """Add a section; sections with the same heading get different anchors."""
        stem = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        taken = {anchor for anchor, _, _ in self._sections}
        anchor, number = stem, 1
        while anchor in taken:
            number += 1
            anchor = f"{stem}-{number}"
        self._sections.append((anchor, heading, blocks))

    def render(self) -> str:
        """Return the page as HTML text."""
        blocks = [block for _, _, blocks in self._sections for block in blocks]
        styles = _distinct([asset("page.css"), *(block.style for block in blocks)])
        scripts = _distinct([asset("page.js"), *(block.script for block in blocks)])
        hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
        policy = (
            f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        )
        parts = [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f'<meta name="generator" content="coaltree {__version__}">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(self.title)}</title>",
            *(f"<style>\n{style}</style>" for style in styles),
            "</head>",
            "<body>",
            '<a class="skip" href="#content">Skip to the content</a>',
            f"<header><h1>{escape(self.title)}</h1>",
            f"<p>{escape(self.subtitle)}</p></header>" if self.subtitle else "</header>",
            '<nav aria-label="Contents"><ul>',
            *(f'<li><a href="#{anchor}">{escape(heading)}</a></li>' for anchor, heading, _ in self._sections),
            "</ul></nav>",
            '<main id="content" tabindex="-1">',
            *(_section(*section) for section in self._sections),
            "</main>",
            f"<footer><p>Made by coaltree {__version__}. This file is complete: it loads nothing.</p></footer>",
            *(f"<script>{script}</script>" for script in scripts),
            "</body>",
            "</html>",
        ]
        return "\n".join(parts) + "\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, in UTF-8."""
        # A lone surrogate, possible in broken input, has no UTF-8 form and becomes a question mark.
        Path(path).write_bytes(self.render().encode("utf-8", errors="replace"))


def escape(value: object) -> str:
    """Text as HTML, safe inside elements and inside quoted attributes."""
    return html.escape(str(value), quote=True)


def embedded_json(value: Any) -> str:
    """JSON that can stand inside a script element: no `<`, `>` or `&` is left, so nothing can close the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def packed(array: npt.NDArray[Any]) -> dict[str, Any]:
    """An array as JSON: type, shape and little-endian bytes in base 64; NaN survives."""
    kind = _DTYPES.get(array.dtype.name)
    if kind is None:
        raise InputTypeError(f"array must have one of the dtypes {', '.join(_DTYPES)}, got {array.dtype}.")
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return {"dtype": kind, "shape": list(array.shape), "data": base64.b64encode(little.tobytes()).decode("ascii")}


def asset(name: str) -> str:
    """Text of a style sheet or script that is shipped with the package."""
    return files("coaltree.report").joinpath("assets", name).read_text(encoding="utf-8")


def _section(anchor: str, heading: str, blocks: tuple[Block, ...]) -> str:
    body = "\n".join(block.html for block in blocks)
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-heading">'
        f'<h2 id="{anchor}-heading">{escape(heading)}</h2>\n{body}\n</section>'
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _distinct(texts: list[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
