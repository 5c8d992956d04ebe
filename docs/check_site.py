"""Follow every link of the built pages, offline: `python docs/check_site.py docs/_build`.

A link must lead to a file of the site, and its anchor to an element of that page. Nothing that a page needs (scripts,
styles, pictures, fonts) may come from another host.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "object": ("data",),
    "embed": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
}
# Links of these kinds are not fetched when a page opens.
PASSIVE = {"canonical", "author", "license", "index", "search", "next", "prev", "alternate"}
STYLE_URL = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


class _Page(HTMLParser):
    """Collect what a page defines, links to and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.missing_alt: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "link" and "href" in values:
            passive = PASSIVE & set(values.get("rel", "").split())
            (self.links if passive else self.loads).append(values["href"])
        for name in LOADED.get(tag, ()):
            if values.get(name):
                parts = values[name].split(",") if name == "srcset" else [values[name]]
                self.loads += [part.split()[0] for part in parts if part.split()]
        # An empty text says that a picture only decorates; a name of a file is what Sphinx puts where there is none.
        if tag == "img" and values.get("alt", "x.png").endswith((".png", ".svg")):
            self.missing_alt.append(values.get("src", "?"))
        self.loads += _style_urls(values.get("style", ""))
        self.in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.loads += _style_urls(data)

    def handle_endtag(self, tag: str) -> None:
        self.in_style = False


def _style_urls(text: str) -> list[str]:
    return [first or second for first, second in STYLE_URL.findall(text)]


def find_problems(site: Path) -> list[str]:
    """Return one line for each link that leads nowhere, resource from elsewhere, or picture without a text."""
    site = site.resolve()
    pages = {}
    for file in sorted(site.rglob("*.html")):
        pages[file] = page = _Page()
        page.feed(file.read_text(encoding="utf-8"))
    found = []
    for file, page in pages.items():
        where = file.relative_to(site)
        found += [f"{where}: the picture {source} has no text" for source in page.missing_alt]
        for target in page.loads:
            found += _check_load(site, file, where, target)
        for target in page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue  # a reader may follow it; the page does not need it
            goal = _resolve(site, file, parts.path)
            if not goal.exists():
                found.append(f"{where}: {target} leads nowhere")
            elif parts.fragment and goal in pages and unquote(parts.fragment) not in pages[goal].anchors:
                found.append(f"{where}: {target} has no such anchor")
    for file in site.rglob("*.css"):
        where = file.relative_to(site)
        for target in _style_urls(file.read_text(encoding="utf-8")):
            found += _check_load(site, file, where, target)
    return found


def _resolve(site: Path, file: Path, path: str) -> Path:
    if not path:
        return file
    goal = site / unquote(path).lstrip("/") if path.startswith("/") else file.parent / unquote(path)
    goal = goal.resolve()
    return goal / "index.html" if goal.is_dir() else goal


def _check_load(site: Path, file: Path, where: Path, target: str) -> list[str]:
    parts = urlsplit(target)
    if parts.scheme == "data":
        return []
    if parts.scheme or parts.netloc:
        return [f"{where}: loads {target} from elsewhere"]
    return [] if _resolve(site, file, parts.path).exists() else [f"{where}: loads {target}, which is not there"]


def main() -> int:
    """Print problems; exit code 1 if there are any."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "_build")
    if not (site / "index.html").is_file():
        print(f"{site} holds no index.html. Build it first: sphinx-build -W -n -b html docs {site}")
        return 2
    problems = find_problems(site)
    for line in problems:
        print(line)
    print(f"{len(list(site.rglob('*.html')))} pages, {len(problems)} problem(s).")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
