"""Trees in and out: scipy linkage matrices, Newick and Nexus text.

Branch lengths are differences of merge times, and the linkage height of a merge is its time, so every format
carries the same numbers. Reading and writing take linear time and never recurse: a caterpillar of 100 000
leaves is as good as any other tree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree._newick import (
    NUMBER,
    Label,
    Nodes,
    Token,
    are_numbers,
    as_column,
    build_newick,
    error_at,
    parse_newick,
    quote,
    scan_newick,
    write_newick,
)
from coaltree.errors import InputError
from coaltree.tree import Tree, as_array

LEFT, RIGHT, HEIGHT, SIZE = range(4)  # the columns of a linkage matrix

_WEIGHT = re.compile(rf"\[&W\s+({NUMBER.pattern})\s*(?:/\s*({NUMBER.pattern})\s*)?\]", re.IGNORECASE)


def to_linkage(tree: Tree) -> Floats:
    """Return a scipy linkage matrix, shape (n−1, 4): left, right, merge time, number of leaves.

    The height of a merge is its time, so `scipy.cluster.hierarchy.cophenet` gives `tree.cophenetic()`.
    """
    return np.column_stack([np.sort(tree.children, axis=1), tree.times, tree.sizes()])


def from_linkage(Z: npt.ArrayLike, names: Iterable[str] | None = None) -> Tree:
    """Make a tree from a scipy linkage matrix; heights become merge times.

    Parameters
    ----------
    Z : array-like, shape (n − 1, 4)
        Any linkage with sorted heights: single, complete, average, weighted or ward.
    names : iterable of str, optional
        One distinct name per leaf.
    """
    rows = as_array(Z, "Z", "iuf", "a scipy linkage matrix of shape (n − 1, 4)").astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] != 4 or len(rows) == 0:
        raise InputError(f"Z must be a scipy linkage matrix of shape (n − 1, 4), n ≥ 2, got {rows.shape}.")
    if not np.isfinite(rows).all():
        raise InputError("Z must be finite, but holds nan or inf: remove missing values from the data first.")
    if (np.diff(rows[:, HEIGHT]) < 0).any():
        raise InputError(
            "Z must have non-decreasing heights (column 2). Centroid and median linkage invert merges: "
            "use method='average', 'complete', 'single' or 'ward'."
        )
    pairs = rows[:, [LEFT, RIGHT]]
    if (pairs != np.floor(pairs)).any() or pairs.min() < 0 or pairs.max() >= 2 * len(rows):
        raise InputError(f"Z must hold nodes between 0 and {2 * len(rows) - 1} in columns 0 and 1.")
    try:
        tree = Tree(pairs.astype(np.int64), rows[:, HEIGHT], names=names)
    except ValueError as error:
        raise InputError(f"Z and names do not make a tree: {error}") from None
    wrong = np.flatnonzero(tree.sizes() != rows[:, SIZE])
    if wrong.size:
        k = int(wrong[0])
        raise InputError(f"Z[{k}, 3] must count the {tree.sizes()[k]} leaves under merge {k}, got {rows[k, SIZE]:g}.")
    return tree


def to_newick(
    tree: Tree,
    support: npt.ArrayLike | None = None,
    *,
    digits: int | None = None,
    notes: Sequence[str] | None = None,
) -> str:
    """Return the tree as one line of Newick text.

    Parameters
    ----------
    tree : Tree
        Its names are quoted where needed; unnamed leaves are written as 0 … n−1.
    support : array-like, shape (n − 1,), optional
        A number for each merge, written as the label of its node.
    digits : int, optional
        Significant digits of branch lengths and support; by default the fewest that read back exactly.
    notes : sequence of str, length n − 1, optional
        A comment for each merge, such as those of `coaltree.posterior.annotate`.
    """
    return write_newick(tree, _labels(tree), support, digits, notes)


def from_newick(text: str, names: Iterable[str] | None = None, *, tolerance: float = 1e-5) -> Tree:
    """Read one tree from Newick text.

    Parameters
    ----------
    text : str
        A binary tree in which every branch has a length and every leaf has a name and the same depth.
        Comments in square brackets, labels of inner nodes and the length at the root are skipped.
    names : iterable of str, optional
        The leaf names in the order of the leaf numbers. By default leaves are numbered as they appear; if
        they are exactly the unquoted integers 0 … n−1, these are their numbers and the tree has no names.
    tolerance : float
        How far the depths of the two sides of a merge may differ, relative to the root time.

    Returns
    -------
    Tree
        Merges are numbered by time; at equal times, in the order in which the text closes them.

    Examples
    --------
    >>> from_newick("(c:1.0,('it''s':0.5,b:0.5):0.5);").names
    ('c', "it's", 'b')
    """
    return newick_with_support(text, names, tolerance=tolerance)[0]


def newick_with_support(
    text: str, names: Iterable[str] | None = None, *, tolerance: float = 1e-5
) -> tuple[Tree, Floats]:
    """Read one tree and the numbers that label its inner nodes, shape (n − 1,), nan where there is none."""
    tokens = scan_newick(text)
    nodes = parse_newick(tokens, text)
    for kind, _, position in tokens:
        if kind != "comment":
            raise error_at(text, position, "There is text after the tree's ';': give one tree at a time")
    return build_newick(nodes, text, names, tolerance)


def to_nexus(
    trees: Tree | Iterable[Tree],
    weights: npt.ArrayLike | None = None,
    *,
    digits: int | None = None,
    notes: Sequence[Sequence[str]] | None = None,
) -> str:
    """Return a Nexus file: a TAXA block, and a TREES block with a translate table.

    Parameters
    ----------
    trees : Tree or iterable of Tree
        Trees over the same leaves: the same names in the same order.
    weights : array-like, shape (number of trees,), optional
        Non-negative tree weights, written as comments `[&W x]`.
    digits : int, optional
        Significant digits of branch lengths; by default the fewest that read back exactly.
    notes : sequence of sequences of str, optional
        For each tree a comment for each merge.
    """
    trees = [trees] if isinstance(trees, Tree) else list(trees)
    if not trees:
        raise InputError("trees must hold at least one tree.")
    if len({tree.leaf_names for tree in trees}) > 1 or len({tree.names is None for tree in trees}) > 1:
        raise InputError("trees must have the same names in the same order: write others to another file.")
    marks = [""] * len(trees)
    if notes is not None and len(notes) != len(trees):
        raise InputError(f"notes must hold one sequence per tree, {len(trees)} in all, got {len(notes)}.")
    if weights is not None:
        checked = as_column(weights, "weights", len(trees), "tree")
        if (checked < 0).any():
            raise InputError(f"weights must be ≥ 0, got {checked.min()}.")
        marks = [f"[&W {weight!r}] " for weight in checked.tolist()]
    labels = _labels(trees[0])
    keys = [str(i) for i in range(1, len(labels) + 1)]
    lines = ["#NEXUS", "BEGIN TAXA;", f"  DIMENSIONS NTAX={len(labels)};", "  TAXLABELS"]
    lines += [f"    {label}" for label in labels]
    lines += ["  ;", "END;", "BEGIN TREES;", "  TRANSLATE"]
    lines += [",\n".join(f"    {key} {label}" for key, label in zip(keys, labels, strict=True)), "  ;"]
    for i, (tree, mark) in enumerate(zip(trees, marks, strict=True)):
        own = None if notes is None else notes[i]
        lines.append(f"  TREE tree_{i + 1} = [&R] {mark}{write_newick(tree, keys, None, digits, own)}")
    return "\n".join([*lines, "END;", ""])


def from_nexus(text: str, tolerance: float = 1e-5) -> list[Tree]:
    """Read every tree of a Nexus file; see `from_newick` for what a tree may look like.

    Leaves are numbered in the order of the TAXA block, else of the translate table, else of appearance. If
    the names are exactly the unquoted integers 0 … n−1, these are their numbers and the trees have no names.
    """
    return nexus_with_weights(text, tolerance)[0]


def nexus_with_weights(text: str, tolerance: float = 1e-5) -> tuple[list[Tree], Floats]:
    """Read every tree of a Nexus file and its weight, `[&W x]` or `[&W x/y]`, 1 where there is none."""
    tokens = scan_newick(text)
    if next(tokens, ("", "", 0))[1].upper() != "#NEXUS":
        raise InputError("The text must start with #NEXUS: for Newick text use from_newick.")
    taxa: list[Label] = []
    translate: dict[str, Label] = {}
    trees, weights = [], []
    for keyword, command in _commands(tokens, text):
        words = [token for token in command if token[0] != "comment"]
        if keyword == "BEGIN":
            translate = {}
        elif keyword == "TAXLABELS":
            taxa = [_as_label(token, text) for token in words[1:-1]]
        elif keyword == "TRANSLATE":
            translate = _translation(words[1:-1], text)
        elif keyword == "TREE":
            if words[-1][0] != "(" or not words[-2][1].endswith("="):
                raise error_at(text, words[0][2], "A TREE command must read 'TREE name = (…);'")
            nodes = parse_newick(chain(command[-1:], tokens), text)
            trees.append(_named_tree(nodes, translate, taxa or list(translate.values()), text, tolerance))
            weights.append(_weight(command, text))
    if not trees:
        raise InputError("The text holds no tree: expected a command 'TREE name = (…);'.")
    return trees, np.array(weights, dtype=np.float64)


def _labels(tree: Tree) -> Sequence[str]:
    return tree.leaf_names if tree.names is None else [quote(name) for name in tree.names]


def _commands(tokens: Iterable[Token], text: str) -> Iterator[tuple[str, list[Token]]]:
    """Split Nexus tokens into keyword and command, up to a semicolon or the '(' where a tree begins."""
    keyword, command = "", list[Token]()
    for token in tokens:
        if not keyword and token[0] != "comment":
            keyword = "TREE" if token[1].upper() == "UTREE" else token[1].upper()
        command.append(token)
        if token[0] == ";" or (token[0] == "(" and keyword == "TREE"):
            yield keyword, command
            keyword, command = "", []
    if keyword:
        raise error_at(text, command[0][2], "This Nexus command does not end: add a ';'")


def _as_label(token: Token, text: str) -> Label:
    kind, value, position = token
    if kind not in ("word", "quoted"):
        raise error_at(text, position, f"Expected a taxon name, got {value!r}: quote names that hold marks")
    return kind, value


def _translation(tokens: Sequence[Token], text: str) -> dict[str, Label]:
    """Read the pairs of a translate table: 'key name, key name, …'."""
    table: dict[str, Label] = {}
    rows: list[list[Token]] = [[]]
    for token in tokens:
        if token[0] == ",":
            rows.append([])
        else:
            rows[-1].append(token)
    for row in filter(None, rows):
        labels = [_as_label(token, text) for token in row]
        if len(labels) != 2 or labels[0][1] in table:
            raise error_at(text, row[0][2], "A row of TRANSLATE must be a key of its own and a name")
        table[labels[0][1]] = labels[1]
    return table


def _named_tree(nodes: Nodes, translate: dict[str, Label], taxa: Sequence[Label], text: str, tolerance: float) -> Tree:
    """Make a tree with leaves in the order of the taxa, or of the numbers that stand for unnamed ones."""
    _rename(nodes, translate, taxa)
    names = [value for _, value in taxa]
    if are_numbers(taxa):
        tree, _ = build_newick(nodes, text, sorted(names, key=int), tolerance)
        return Tree(tree.children, tree.times)
    return build_newick(nodes, text, names or None, tolerance)[0]


def _rename(nodes: Nodes, translate: dict[str, Label], taxa: Sequence[Label]) -> None:
    """Replace keys by names: those of the translate table, else names themselves, else numbers of taxa."""
    table = {str(i): label for i, label in enumerate(taxa, start=1)}
    table |= {label[1]: label for label in taxa} | translate
    for i, pair in enumerate(nodes.pairs):
        if pair is None:
            nodes.labels[i] = table.get(nodes.labels[i][1], nodes.labels[i])


def _weight(tokens: Sequence[Token], text: str) -> float:
    for kind, value, position in tokens:
        match = _WEIGHT.fullmatch(value) if kind == "comment" else None
        if match:
            top, bottom = float(match[1]), float(match[2] or 1)
            weight = top / bottom if 0 < bottom < math.inf else math.inf
            if not 0 <= weight < math.inf:
                raise error_at(text, position, "A tree weight must be finite and ≥ 0")
            return weight
    return 1.0
