"""Whole numbers in the source at which the work may be done in another way: named constants, and compared numbers."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "coaltree"
# Smaller ones are flags, positions and special cases of one or two rows; compared numbers are often numbers of names.
FEWEST, FEWEST_COMPARED = 2, 5
FOLDED = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Name, ast.operator, ast.unaryop, ast.expr_context)


def _assigned(statement):
    """(name, value) of what a statement assigns, also side by side."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        together = isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple)
        for name, value in (
            zip(target.elts, statement.value.elts, strict=True) if together else [(target, statement.value)]
        ):
            if isinstance(name, ast.Name):
                yield name.id, value


def sizes_in(source):
    """{name: value} of whole numbers that a module names in capitals, and of those with which it compares something."""
    module, constants, found = ast.parse(source), {}, {}
    for name, value in (pair for statement in module.body for pair in _assigned(statement)):
        known = all(node.id in constants for node in ast.walk(value) if isinstance(node, ast.Name))
        if name.isupper() and known and all(isinstance(node, FOLDED) for node in ast.walk(value)):
            constants[name] = eval(compile(ast.Expression(value), "constant", "eval"), {}, dict(constants))
    for compared in (node for node in ast.walk(module) if isinstance(node, ast.Compare)):
        for side in (compared.left, *compared.comparators):
            if isinstance(side, ast.Constant) and type(side.value) is int and side.value >= FEWEST_COMPARED:
                found[ast.unparse(compared)] = side.value
    return {name: value for name, value in constants.items() if type(value) is int and value >= FEWEST} | found


def all_sizes():
    """{"stage.module.NAME": value} over the whole source."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        module = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        here = sizes_in(file.read_text(encoding="utf-8"))
        found |= {f"{module}.{name}": value for name, value in here.items()}
    return found
