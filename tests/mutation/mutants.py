"""Which changes are tried: Cosmic Ray's operators that make plausible mistakes, and one that drops a keyword."""

import ast
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.operators.operator import Operator
from cosmic_ray.work_item import MutationSpec, WorkItem

# Pairs that a person may confuse. Cosmic Ray's others (`+` to `<<`) mostly raise TypeError, which any test notices.
BINARY = (
    "Add_Sub",
    "Sub_Add",
    "Mul_Div",
    "Div_Mul",
    "FloorDiv_Div",
    "Mod_Div",
    "Pow_Mul",
    "BitAnd_BitOr",
    "BitOr_BitAnd",
)
COMPARISON = ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq", "Lt_Gt", "Gt_Lt", "Is_IsNot", "IsNot_Is")
CORE = (
    *(f"ReplaceBinaryOperator_{pair}" for pair in BINARY),
    *(f"ReplaceComparisonOperator_{pair}" for pair in COMPARISON),
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Invert", "ReplaceUnaryOperator_Delete_Not"),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
)
DROP_KEYWORD = "coaltree/DropKeyword"


class DropKeyword(Operator):
    """Leave a keyword argument out, so that the default of the function called takes its place."""

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        """Return nothing: tests/test_mutation.py has the examples."""
        return ()

    def _keywords(self, node: Any) -> list[int]:
        if node.type not in ("arglist", "trailer"):
            return []
        return [i for i, child in enumerate(node.children) if child.type == "argument" and child.children[1] == "="]

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Yield where each keyword argument of a call begins and ends."""
        yield from [(node.children[i].start_pos, node.children[i].end_pos) for i in self._keywords(node)]

    def mutate(self, node: Any, index: int) -> Any:
        """Remove the keyword argument and the comma before or after it."""
        i = self._keywords(node)[index]
        if node.type == "trailer":
            del node.children[i]
        else:
            del node.children[max(i - 1, 0) : i + 1 if i else 2]
        return node


def operators() -> dict[str, Operator]:
    """Return every operator by its name."""
    core = {f"core/{name}": plugins.get_operator(f"core/{name}")() for name in CORE}
    return {**core, DROP_KEYWORD: DropKeyword()}


def _annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the spans of type annotations: `int | None` is no arithmetic."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        for field in ("annotation", "returns"):
            part = getattr(node, field, None)
            if part is not None:
                spans.append(((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)))
    return spans


def find_mutants(path: Path, name: str) -> list[WorkItem]:
    """Return every mutant of a file, under the name it has in the repository."""
    source = path.read_text(encoding="utf-8")
    spans = _annotations(source)
    nodes = list(ast_nodes(get_ast(source)))
    found = []
    for operator_name, operator in operators().items():
        positions = [(node, *span) for node in nodes for span in operator.mutation_positions(node)]
        for occurrence, (node, start, end) in enumerate(positions):
            if any(first <= start and end <= last for first, last in spans):
                continue
            where = MutationSpec(name, operator_name, occurrence, start, end, {}, ASTQuery(node).get_definition_name())
            found.append(WorkItem.single(uuid.uuid4().hex, where))
    return found


def sample(mutants: list[list[WorkItem]], number: int, seed: int) -> list[WorkItem]:
    """Draw from all files together, each in proportion to its mutants; a longer sample begins with the shorter one."""
    rng = random.Random(seed)
    ranked = []
    for of_file in mutants:
        order = rng.sample(of_file, len(of_file))
        ranked += [((i + rng.random()) / len(order), item) for i, item in enumerate(order)]
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])[:number]]
