"""The map of the code on the page "How it works inside", made from the code itself whenever the pages are built.

`python docs/_ext/inside.py FOLDER` writes the same to files: `imports.svg` and `modules.md`.

- The picture shows which folder imports from which, and how often.
- The list has every module with its length and the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import html
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "coaltree"
ROOT = "coaltree"
ROOT_MEANING = "What every stage shares: the tree, formats, reading, checks, random numbers."


class Module(NamedTuple):
    """What the map says of a file."""

    name: str  # below the package, as in "model.gig"
    folder: str
    n_lines: int
    sentence: str  # the first of its docstring
    imports: frozenset[str]  # dotted names below the package


# ---- reading


def read_modules(source: Path = SOURCE) -> list[Module]:
    """Return every module of the package but `__init__.py` and `__main__.py`, which only gather and call."""
    found = []
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        if parts in (("__init__",), ("__main__",)):
            continue
        code = file.read_text(encoding="utf-8")
        tree = ast.parse(code)
        name = ".".join(part for part in parts if part != "__init__")
        folder = parts[0] if len(parts) > 1 else ROOT
        sentence = first_sentence(ast.get_docstring(tree) or "")
        found.append(Module(name, folder, code.count("\n"), sentence, frozenset(_imports(tree, source))))
    return found


def _imports(tree: ast.AST, source: Path) -> Iterator[str]:
    """Names of the modules below the package that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == source.name:
            for alias in node.names:
                parts = [*node.module.split(".")[1:], alias.name]
                while parts and not (source.joinpath(*parts).with_suffix(".py").exists() or _is_folder(source, parts)):
                    parts.pop()
                if parts:
                    yield ".".join(parts)
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.partition(".")[2] for alias in node.names if alias.name.startswith(f"{source.name}.")
            )


def _is_folder(source: Path, parts: list[str]) -> bool:
    return source.joinpath(*parts, "__init__.py").exists()


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-ZΦ`\"])", paragraph)[0]


def count_edges(modules: list[Module]) -> Counter[tuple[str, str]]:
    """Return how many imports lead from one folder to another."""
    folders = {module.folder for module in modules}
    edges: Counter[tuple[str, str]] = Counter()
    for module in modules:
        for name in module.imports:
            first = name.split(".")[0]
            target = first if first in folders else ROOT
            if target != module.folder:
                edges[module.folder, target] += 1
    return edges


def order_folders(edges: Counter[tuple[str, str]]) -> list[str]:
    """Return the folders such that each imports only from earlier ones; ValueError if there is no such order."""
    waiting = {folder for edge in edges for folder in edge}
    ordered: list[str] = []
    while waiting:
        free = [folder for folder in waiting if not any((folder, other) in edges for other in waiting)]
        if not free:
            raise ValueError(f"folders import each other: {', '.join(sorted(waiting))}.")
        ordered += sorted(free)
        waiting -= set(free)
    return ordered


# ---- drawing

ROW, HEIGHT, WIDTH, BOX = 70, 52, 800, 580


def draw(modules: list[Module]) -> str:
    """Return the picture: folders from the first stage to the last, an arc for every pair that import."""
    edges = count_edges(modules)
    folders = order_folders(edges)
    place = {folder: i for i, folder in enumerate(folders)}
    parts = [
        f'<svg class="inside" viewBox="0 0 {WIDTH} {ROW * len(folders)}" role="img" aria-labelledby="inside-title">',
        f'<title id="inside-title">{html.escape(describe(folders, edges))}</title>',
        '<defs><marker id="inside-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    # A folder's arcs leave and arrive side by side, those that reach far outside.
    ends = {folder: sorted(_ends(folder, edges), key=lambda end: _reach(end, folder, place)) for folder in folders}
    for (importer, imported), count in sorted(edges.items(), key=lambda item: item[1]):
        start = _height(ends[importer], (imported, "out"), place[importer])
        stop = _height(ends[imported], (importer, "in"), place[imported])
        reach = BOX + 30 + (WIDTH - BOX - 75) * (abs(place[importer] - place[imported]) / (len(folders) - 1)) ** 0.8
        kind = "to-root" if imported == ROOT else "plain"
        parts.append(
            f'<g class="{kind}"><title>{importer} imports from {imported}: {count}</title>'
            f'<path d="M{BOX} {start:.0f} C{reach:.0f} {start:.0f} {reach:.0f} {stop:.0f} {BOX + 4} {stop:.0f}" '
            f'stroke-width="{0.6 + 0.45 * count**0.5:.1f}" marker-end="url(#inside-tip)"/></g>'
        )
    for folder in folders:
        inside = [module for module in modules if module.folder == folder]
        top = ROW * place[folder] + (ROW - HEIGHT) // 2
        parts += [
            f'<rect x="1" y="{top}" width="{BOX - 2}" height="{HEIGHT}" rx="6"/>',
            f'<text class="name" x="14" y="{top + 22}">{_shown(folder)}</text>',
            f'<text class="size" x="{BOX - 14}" y="{top + 22}">{_size(inside)}</text>',
            f'<text x="14" y="{top + 42}">{html.escape(_clipped(_meaning(folder, modules).replace("`", "")))}</text>',
        ]
    return "\n".join([*parts, "</svg>"])


def _ends(folder: str, edges: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(b, "out") for a, b in edges if a == folder] + [(a, "in") for a, b in edges if b == folder]


def _reach(end: tuple[str, str], folder: str, place: dict[str, int]) -> float:
    """Order of arcs at a box: those to earlier folders come first, the farthest at the edge."""
    distance = place[end[0]] - place[folder]
    return 1 / distance if distance else 0.0


def _height(ends: list[tuple[str, str]], end: tuple[str, str], row: int) -> float:
    share = (ends.index(end) + 1) / (len(ends) + 1)
    return ROW * row + (ROW - HEIGHT) / 2 + 4 + share * (HEIGHT - 8)


def describe(folders: list[str], edges: Counter[tuple[str, str]]) -> str:
    """Return the picture in words, for those who cannot see it."""
    lines = []
    for folder in folders:
        uses = [f"{_shown(b)} ({edges[folder, b]})" for b in folders if (folder, b) in edges]
        lines.append(f"{_shown(folder)} imports from {', '.join(uses)}" if uses else f"{_shown(folder)} from none")
    return f"Folders of the package in order: {'; '.join(lines)}."


def _shown(folder: str) -> str:
    return "root files" if folder == ROOT else folder


def _size(modules: list[Module]) -> str:
    n_lines = sum(module.n_lines for module in modules)
    shown = f"{n_lines:,}".replace(",", "\u2009")
    return f"{len(modules)} files, {shown} lines"


def _meaning(folder: str, modules: list[Module]) -> str:
    return ROOT_MEANING if folder == ROOT else next(each.sentence for each in modules if each.name == folder)


def _clipped(text: str, most: int = 88) -> str:
    return text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0].rstrip(",:") + " …"


# ---- lists, in Markdown


def list_modules(modules: list[Module]) -> list[str]:
    """Return a section for each folder: its files with lengths and first sentences."""
    lines = []
    for folder in order_folders(count_edges(modules)):
        inside = [module for module in modules if module.folder == folder]
        lines += [f"**{_shown(folder)}** ({_size(inside)}). {_meaning(folder, modules)}", ""]
        lines += ["| module | lines | what it is |", "|---|---:|---|"]
        lines += [
            f"| `{module.name.removeprefix(f'{folder}.')}` | {module.n_lines} | {_cell(module.sentence)} |"
            for module in inside
            if module.name != folder
        ]
        lines.append("")
    return lines


def _cell(text: str) -> str:
    """Bars would end a cell, and stars and brackets are not markup here."""
    return re.sub(r"([|*\[\]_<])(?=[^`]*(?:`[^`]*`[^`]*)*$)", r"\\\1", text).replace("``", "`")


# ---- Sphinx


def setup(app: Any) -> dict[str, bool]:
    """Register the directive `inside`, whose argument is graph or modules."""
    from docutils import nodes
    from docutils.statemachine import StringList
    from sphinx.util.docutils import SphinxDirective

    class Inside(SphinxDirective):
        """Show a part of the map."""

        required_arguments = 1

        def run(self) -> list[Any]:
            self.env.note_reread()  # what it shows is not in the page's file
            if self.arguments[0] == "graph":
                return [nodes.raw("", draw(read_modules()), format="html")]
            lines = list_modules(read_modules())
            container = nodes.container(classes=["inside"])
            self.state.nested_parse(StringList(lines, source=__file__), self.content_offset, container)
            return [container]

    app.add_directive("inside", Inside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main(folder: Path) -> None:
    """Write picture and lists."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = read_modules()
    for name, text in (
        ("imports.svg", draw(modules).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)),
        ("modules.md", "\n".join(list_modules(modules))),
    ):
        (folder / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "inside"))
