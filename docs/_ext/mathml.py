"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network.

`html_math_renderer = "mathml"` in conf.py chooses it.
"""

import re

from docutils import nodes
from latex2mathml.converter import convert

# Browsers put no space between the name of a function and an argument without brackets.
FUNCTION = re.compile(r"<mi>(log|exp|min|max)</mi>(?!<mo|<mspace|<mrow><mo)")


def to_mathml(latex, display):
    """Return the formula as a math element."""
    return FUNCTION.sub(r'<mi>\1</mi><mspace width="0.17em"></mspace>', convert(latex, display=display))


def _inline(self, node):
    self.body.append(to_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _display(self, node):
    # Scrolls by itself where the window is narrow, so it must be reachable by keyboard.
    self.body.append('<div class="math" tabindex="0">')
    self.body.append(to_mathml(node.astext(), "block"))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
