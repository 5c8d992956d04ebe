"""The public surface as text, for docs/api/public.md: `python -m tests.surface` writes that page anew."""

import importlib
import inspect
import textwrap
from pathlib import Path

import coaltree

PAGE = Path(__file__).parents[1] / "docs" / "api" / "public.md"
INTRODUCTION = """# What is promised

Every name that a program may rely on, as Python has it. Names are added freely; a change or a removal is named in the
changelog. Everything else that can be imported is internal: the API reference describes it for those who read the code,
and it changes without notice.

Arguments after `*` are given by name. An `ArrayLike` is whatever `numpy.asarray` takes. `except coaltree.CoaltreeError`
catches every error about what a caller gave; each is a `ValueError` or a `TypeError` too.
"""
MODULES = {  # whether arguments are promised too, and not only names
    "results": True,
    "metrics": True,
    "plots": True,
    "formats": True,
    "records": False,
}
GIG = ("log_integral", "sample")
# Names that guides and examples import from elsewhere.
GUIDES = {
    "reading": ("TableError", "read_table"),
    "posterior.diagnostics": ("to_arviz",),
    "posterior.annotate": ("to_annotated_newick", "to_annotated_nexus"),
    "model.diffusion": ("node_posterior",),
    "model.gp": ("GaussianProcess", "OnColumns"),
    "regression.comparison": ("compare",),
    "regression.baselines": ("BASELINES",),
    "plots.records": ("plot_cost_curves",),
}


def promised(module):
    """Names that a module promises: its `__all__`, else its own functions and classes."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return sorted(name for name in getattr(module, "__all__", own) if not name.startswith("_"))


def members(owner):
    """Public methods and properties of a class and its bases here, by name; not those that scikit-learn puts there."""
    ours = [each for each in reversed(owner.__mro__) if each.__module__.startswith("coaltree.estimators")] or [owner]
    every = {name: value for each in ours for name, value in vars(each).items()}
    found = {name: value for name, value in sorted(every.items()) if not name.startswith("_")}
    # A method that is there under a condition is behind a descriptor.
    return {name: getattr(value, "fn", value) for name, value in found.items() if not name.endswith("_request")}


def parameters(value, method=False):
    """Parameters of a function or a class, or of a method without the first."""
    return list(inspect.signature(getattr(value, "__func__", value)).parameters.values())[int(method) :]


def is_called(value):
    """Whether a name has a signature; errors are raised, not called."""
    return callable(getattr(value, "__func__", value)) and not (inspect.isclass(value) and issubclass(value, Exception))


def functions():
    """Every promised function, class and method: its name, itself, and whether it is a method."""
    for name in coaltree.__all__:
        value = getattr(coaltree, name)
        if is_called(value):
            yield name, value, False
        if inspect.isclass(value):
            yield from ((f"{name}.{each}", one, True) for each, one in members(value).items() if is_called(one))
    for name, whole in MODULES.items():
        module = importlib.import_module(f"coaltree.{name}")
        each = {one: getattr(module, one) for one in promised(module) if whole}
        yield from ((f"{name}.{one}", value, False) for one, value in each.items() if is_called(value))


def line(name, value, method=False, indent=""):
    """A name with its arguments, types without quotes, on as many lines as it needs."""
    if not is_called(value):
        return indent + name
    shown, named = [], False
    for each in parameters(value, method):
        if each.kind is each.KEYWORD_ONLY and not named:
            shown, named = [*shown, "*"], True
        text = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "") + each.name
        kind = getattr(each.annotation, "__forward_arg__", each.annotation)
        text += "" if kind is each.empty else f": {kind}"
        shown.append(text if each.default is each.empty else f"{text} = {each.default!r}")
    returns = inspect.signature(getattr(value, "__func__", value)).return_annotation
    end = ")" if inspect.isclass(value) or returns is inspect.Signature.empty else f") -> {returns}"
    whole = ", ".join(each.replace(" ", "\0") for each in shown)  # lines break between arguments only
    lines = textwrap.wrap(
        f"{name}({whole}{end}", 86, initial_indent=indent, subsequent_indent=f"{indent}    ", break_long_words=False
    )
    return "\n".join(lines).replace("\0", " ")


def text():
    """The whole page."""
    lines = [INTRODUCTION, "## `import coaltree`\n", "```text"]
    for name in coaltree.__all__:
        value = getattr(coaltree, name)
        lines.append(f"{name}: a module, below" if inspect.ismodule(value) else line(name, value))
        if inspect.isclass(value) and is_called(value):
            lines += [line(f".{each}", one, True, "    ") for each, one in members(value).items()]
    lines.append("```\n")
    for name, whole in MODULES.items():
        module = importlib.import_module(f"coaltree.{name}")
        names = promised(module)
        lines += [f"## `coaltree.{name}`\n", f"{inspect.getdoc(module).splitlines()[0]}\n", "```text"]
        lines += [line(each, getattr(module, each)) for each in names] if whole else [textwrap.fill(", ".join(names))]
        lines.append("```\n")
    lines += [
        "## `coaltree.model`\n",
        "Of the mathematics two functions: the integral of the truncated generalised inverse Gaussian density, and",
        "draws from it.\n",
        "```text",
        *(line(f"gig.{name}", getattr(coaltree.model.gig, name)) for name in GIG),
        "```\n",
        "## In the guides\n",
        "Names that guides import from the modules they are in.\n",
        "```text",
        *(f"{name}: {', '.join(names)}" for name, names in GUIDES.items()),
        "```",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
