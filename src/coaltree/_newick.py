"""The Newick machinery under `coaltree.formats`: tokens → nodes → tree, and tree → text.

Everything is linear in the length of the text and nothing recurses. Newick and Nexus share the tokens: labels
are bare words, in which an underscore means a blank, or are quoted, with a doubled quote for a quote; square
brackets are comments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree.errors import InputError, InputTypeError
from coaltree.tree import Tree, as_array, as_index

Token = tuple[str, str, int]  # kind ("word", "quoted", "comment", or the mark itself), value, position in the text
Label = tuple[str, str]  # kind and value: only bare integers can stand for unnamed leaves, '0' is a name

TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<mark>[(),:;]) | (?P<word>[^\s()\[\],:;']+) | (?P<comment>\[[^\]]*+\])
    | (?P<quoted>'[^']*+(?:''[^']*+)*+') | (?P<bad>.)""",
    re.VERBOSE | re.DOTALL,
)
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9.]*")  # names that every reader takes bare and unchanged


def error_at(text: str, position: int, message: str) -> ValueError:
    """Return a ValueError that says where in the text something is wrong."""
    line = text.count("\n", 0, position) + 1
    return ValueError(f"{message} (line {line}, character {position}: {text[position : position + 24]!r}).")


def scan_newick(text: str) -> Iterator[Token]:
    """Cut text into labels, marks and comments; white space only separates."""
    if not isinstance(text, str):
        raise InputTypeError(f"text must be a str, got {type(text).__name__}: read the file and decode it first.")
    for match in TOKEN.finditer(text):
        kind, value, position = match.lastgroup, match.group(), match.start()
        if kind == "mark":
            yield value, value, position
        elif kind == "word":
            yield "word", value.replace("_", " "), position
        elif kind == "quoted":
            yield "quoted", value[1:-1].replace("''", "'"), position
        elif kind == "comment":
            yield "comment", value, position
        elif kind == "bad":
            raise error_at(text, position, f"{value} without its closing partner: close it or quote the name")


def quote(name: str) -> str:
    """Return a name as a label that reads back exactly: bare if that is safe everywhere, else quoted."""
    return name if PLAIN.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def are_numbers(labels: Sequence[Label]) -> bool:
    """Say whether the labels are the bare integers 0 … n−1 in any order: the leaves of an unnamed tree."""
    bare = {value for kind, value in labels if kind == "word"}
    return 0 < len(bare) == len(labels) and bare == set(map(str, range(len(labels))))


@dataclass
class Nodes:
    """The nodes of one tree as lists, children before parents; `pairs` is None at leaves."""

    labels: list[Label] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    pairs: list[tuple[int, int] | None] = field(default_factory=list)

    def add(self, label: Label, position: int, pair: tuple[int, int] | None) -> None:
        """Append a node; its length may follow."""
        self.labels.append(label)
        self.lengths.append(math.nan)
        self.positions.append(position)
        self.pairs.append(pair)


def parse_newick(tokens: Iterable[Token], text: str) -> Nodes:
    """Read the nodes of one tree, up to and with its semicolon."""
    nodes = Nodes()
    groups: list[tuple[int, list[int]]] = []  # the open parentheses: position, and the nodes inside so far
    state = "start"  # what came last: "start" of a node, "closed" parenthesis, "label", "colon" or "length"
    for kind, value, position in tokens:
        is_label = kind in ("word", "quoted")
        if kind == "comment":
            continue
        if state == "start":
            if kind == "(":
                groups.append((position, []))
            elif is_label:
                nodes.add((kind, value), position, None)
                state = "label"
            else:
                raise error_at(text, position, "Expected a leaf name or '(': every leaf needs a name")
        elif state == "colon":
            if kind != "word" or not NUMBER.fullmatch(value):
                raise error_at(text, position, "Expected a branch length, a number, after ':'")
            nodes.lengths[-1] = float(value)
            state = "length"
        elif is_label and state == "closed":
            nodes.labels[-1] = kind, value
            state = "label"
        elif kind == ":" and state != "length":
            state = "colon"
        elif kind in (",", ")") and groups:
            _check_length(nodes, text)
            opening, members = groups[-1]
            members.append(len(nodes.pairs) - 1)
            state = "start"
            if kind == ")":
                groups.pop()
                nodes.add(("word", ""), opening, _as_pair(members, text, opening))
                state = "closed"
        elif kind == ";" and not groups:
            return nodes
        elif kind in (",", ")"):
            raise error_at(text, position, f"Unbalanced parentheses: '{kind}' outside of any '('")
        elif kind == ";":
            raise error_at(text, groups[-1][0], "Unbalanced parentheses: this '(' is never closed")
        else:
            raise error_at(text, position, "Expected ',', ')' or ';': quote names that hold blanks or marks")
    if groups:
        raise error_at(text, groups[-1][0], "Unbalanced parentheses: this '(' is never closed")
    if not nodes.pairs:
        raise InputError("The text is empty: expected a tree such as '(a:1,b:1);'.")
    raise error_at(text, len(text), "The tree does not end: add a ';'")


def _check_length(nodes: Nodes, text: str) -> None:
    length, position = nodes.lengths[-1], nodes.positions[-1]
    if math.isnan(length):
        raise error_at(text, position, "This node has no branch length: write one as 'name:0.5' or '(…):0.5'")
    if not 0 <= length < math.inf:
        raise error_at(text, position, f"This node's branch length must be finite and ≥ 0, got {length}")


def _as_pair(members: list[int], text: str, opening: int) -> tuple[int, int]:
    if len(members) != 2:
        raise error_at(
            text,
            opening,
            f"Trees are binary, but the node that opens here joins {len(members)}: "
            "resolve polytomies with branches of length 0 and leave out nodes with one child",
        )
    return members[0], members[1]


def build_newick(nodes: Nodes, text: str, names: Iterable[str] | None, tolerance: float) -> tuple[Tree, Floats]:
    """Make a tree of parsed nodes; also return the numbers that label its merges, nan where there is none."""
    leaves = [i for i, pair in enumerate(nodes.pairs) if pair is None]
    inner = [i for i, pair in enumerate(nodes.pairs) if pair is not None]
    if not inner:
        raise error_at(text, nodes.positions[0], "A tree needs at least two leaves, as in '(a:1,b:1);'")
    labels = [nodes.labels[i] for i in leaves]
    if isinstance(names, str):
        raise InputTypeError("names must be an iterable of strings, got one string.")
    if names is not None:
        names = list(names)
    elif not are_numbers(labels):
        names = [value for _, value in labels]
    ids = _leaf_ids(nodes, leaves, text, names)
    times = _times(nodes, text, tolerance)
    # A stable sort of nodes that come children first keeps children first among equal times.
    order = np.array(inner)[np.argsort(times[inner], kind="stable")]
    number = np.empty(len(times), dtype=np.int64)
    number[leaves] = ids
    number[order] = np.arange(len(leaves), len(times))
    children = number[np.array([nodes.pairs[i] for i in order])]
    support = [_as_number(nodes.labels[i][1]) for i in order]
    return Tree(children, times[order], names=names), np.array(support)


def _leaf_ids(nodes: Nodes, leaves: list[int], text: str, names: Sequence[str] | None) -> list[int]:
    seen: set[str] = set()
    known = None if names is None else {name: i for i, name in enumerate(names)}
    ids = []
    for i in leaves:
        name = nodes.labels[i][1]
        if name in seen:
            raise error_at(text, nodes.positions[i], f"The leaf name {name!r} appears twice: rename one")
        if known is not None and name not in known:
            raise error_at(text, nodes.positions[i], f"The leaf name {name!r} is not among the given names")
        seen.add(name)
        ids.append(int(name) if known is None else known[name])
    if names is not None and len(names) != len(seen):
        raise InputError(f"The tree has {len(seen)} leaves, but {len(names)} names are given: give one per leaf.")
    return ids


def _times(nodes: Nodes, text: str, tolerance: float) -> Floats:
    """Return node times, shape (2n−1,), from the branch lengths of an ultrametric tree.

    Both children of a node give its time. The sum of child time and length is exact for a child at time 0 and
    for a length no longer than the child is old, so a child at 0 comes first, then the older child. The rest
    rounds by half a unit in the last place, once in a doubling of time: our own text reads back to rounding.
    """
    times: list[float] = []
    worst, where = 0.0, 0
    for i, pair in enumerate(nodes.pairs):
        if pair is None:
            times.append(0.0)
            continue
        young, old = pair if times[pair[0]] <= times[pair[1]] else pair[::-1]
        above_young, above_old = times[young] + nodes.lengths[young], times[old] + nodes.lengths[old]
        time = above_young if times[young] == 0 else above_old
        times.append(max(time, times[old]))
        if abs(above_young - above_old) > worst:
            worst, where = abs(above_young - above_old), i
    if not worst <= tolerance * times[-1]:
        raise error_at(
            text,
            nodes.positions[where],
            f"The tree is not ultrametric: the leaf depths on the two sides of this node differ "
            f"by {worst:.3g}, {worst / times[-1] if times[-1] else math.inf:.3g} of the root time. "
            f"Raise tolerance (now {tolerance:g}) if this is rounding",
        )
    return np.array(times)


def _as_number(label: str) -> float:
    return float(label) if NUMBER.fullmatch(label) else math.nan


def write_newick(
    tree: Tree,
    labels: Sequence[str],
    support: npt.ArrayLike | None,
    digits: int | None,
    notes: Sequence[str] | None = None,
) -> str:
    """Return Newick text with the given leaf labels, already quoted, and a comment behind every merge."""
    n, root = tree.n_leaves, 2 * tree.n_leaves - 2
    times = tree.node_times()
    tails = [":" + length for length in _as_text(times[tree.parents()] - times, digits)]
    tails[root] = ";"
    marks = [""] * (n - 1) if support is None else _as_text(as_column(support, "support", n - 1, "merge"), digits)
    if notes is not None:
        if len(notes) != n - 1 or any("]" in note for note in notes):
            raise InputError(f"notes must be {n - 1} texts, one per merge, without ']'.")
        marks = [f"{mark}[{note}]" for mark, note in zip(marks, notes, strict=True)]
    children = tree.children.tolist()
    pieces: list[str] = []
    stack: list[int | str] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            pieces.append(item)
        elif item < n:
            pieces.append(labels[item] + tails[item])
        else:
            left, right = children[item - n]
            pieces.append("(")
            stack += [f"){marks[item - n]}{tails[item]}", right, ",", left]
    return "".join(pieces)


def _as_text(values: Floats, digits: int | None) -> list[str]:
    if digits is None:
        return [repr(value) for value in values.tolist()]
    if as_index(digits, "digits") < 1:
        raise InputError(f"digits must be at least 1, got {digits}.")
    return [f"{value:.{digits}g}" for value in values.tolist()]


def as_column(values: npt.ArrayLike, name: str, length: int, per: str) -> Floats:
    """Check one finite number per merge or per tree."""
    array = as_array(values, name, "iuf", f"real numbers of shape ({length},)").astype(np.float64)
    if array.shape != (length,):
        raise InputError(f"{name} must have shape ({length},), one number per {per}, got {array.shape}.")
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, but holds nan or inf.")
    return array
