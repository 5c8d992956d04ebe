"""What README and the pages show: commands, configurations and Python, found by parsing their Markdown."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
        *(path for path in sorted(DOCS.rglob("*.md")) if not path.relative_to(DOCS).parts[0].startswith("_")),
    )
}
FENCE = re.compile(r"^```(\{?[\w-]*\}?)([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
# A command in a sentence is one to be run if it says where to write.
INLINE = re.compile(r"`(coaltree [^`]*--out [^`]*)`")
COMMANDS, SETTINGS, CODE, SHOWN = "sh", "toml", "python", "text"


class Block(NamedTuple):
    """A fenced block of a page, or a command in one of its sentences."""

    page: str
    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a block, one by one, without comments."""
        lines = (re.sub(r"\s+#.*$", "", line) for line in self.text.splitlines())
        return [part.strip() for line in lines for part in line.split(" && ") if part.strip()]

    @property
    def name(self) -> str:
        """Its page and first words."""
        return f"{self.page}: {' '.join(self.text.split())[:60]}"


def find_blocks(pages: dict[str, str] = PAGES) -> list[Block]:
    """Every block of every page; directives of Sphinx, which the build executes, are not code."""
    found = []
    for page, text in pages.items():
        found += [Block(page, kind, body) for kind, _, body in FENCE.findall(text) if not kind.startswith("{")]
        inline = INLINE.findall(FENCE.sub("", text))
        found += [Block(page, COMMANDS, " ".join(command.split())) for command in inline]
    return found


def as_runs(commands: list[str]) -> list[tuple[str, ...]]:
    """Split commands into those that follow each other in a folder: what writes to the same place is an alternative."""
    runs: list[list[str]] = [[]]
    for command in commands:
        if out_of(command) in {out_of(earlier) for earlier in runs[-1]} - {None}:
            runs.append([])
        runs[-1].append(command)
    return [tuple(run) for run in runs if run]


def out_of(command: str) -> str | None:
    """Where a command says that it writes."""
    words = shlex.split(command)
    return words[words.index("--out") + 1] if "--out" in words[:-1] else None
