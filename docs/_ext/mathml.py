"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network.

`html_math_renderer = "mathml"` in conf.py chooses it.
"""

from docutils import nodes
from latex2mathml.converter import convert


def _inline(self, node):
    self.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def _display(self, node):
    # Scrolls by itself where the window is narrow, so it must be reachable by keyboard.
    self.body.append('<div class="math" tabindex="0">')
    self.body.append(convert(node.astext(), display="block"))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
