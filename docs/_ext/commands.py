"""The command line's reference, from the commands themselves."""

import importlib
from enum import Enum

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from coaltree.cli import app as coaltree


def find_command(words):
    """Return the click command that `coaltree WORDS` runs."""
    command = typer.main.get_command(coaltree)
    for word in words:
        command = command.commands[word]
    return command


def _default(parameter):
    value = parameter.default
    if value is None or callable(value) or value is False or value == ():
        return ""
    value = getattr(value, "value", value)
    return f" Default: `{value}`." if not isinstance(value, bool) else " On by default."


def _choices(parameter):
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)  # typer since 0.26
    found = list(kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()
    found = found or getattr(getattr(parameter, "type", None), "choices", None) or ()
    return " One of " + ", ".join(f"`{getattr(each, 'value', each)}`" for each in found) + "." if found else ""


def describe(command):
    """Return Markdown: what the command does, its arguments and its options."""
    lines = [command.help.strip(), ""]
    for parameter in command.params:
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            names = f"`{parameter.name.upper()}`"
        else:
            names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        needed = " Required." if parameter.required else ""
        lines += [names, f": {parameter.help}{needed}{_choices(parameter)}{_default(parameter)}", ""]
    return lines


class Command(SphinxDirective):
    """`{command} records study`: usage, arguments and options of a command of coaltree."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """Render the Markdown of `describe`."""
        words = self.arguments[0].split()
        container = nodes.container(classes=["command"])
        lines = describe(find_command(words))
        self.state.nested_parse(StringList(lines, source="coaltree.cli"), self.content_offset, container)
        return [container]


class Written(SphinxDirective):
    """`{written} coaltree.results.clustering`: the files that a command writes, from the list it prints itself."""

    required_arguments = 1

    def run(self):
        """Make a table of MEANING."""
        meaning = importlib.import_module(self.arguments[0]).MEANING
        lines = ["| file | what it is |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in meaning.items())]
        container = nodes.container()
        self.state.nested_parse(StringList(lines, source=self.arguments[0]), self.content_offset, container)
        return [container]


def setup(app):
    """Register the directives."""
    app.add_directive("command", Command)
    app.add_directive("written", Written)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
