"""Does the model fit: what left-out rows say of the models that were compared, and rows that fit none of them well."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coaltree._arrays import Floats
from coaltree.posterior.loo import Compared, describe
from coaltree.report.blocks import table, text
from coaltree.report.page import Block
from coaltree.tree import Tree

# A row is listed as one that does not fit where one drawn like the others is as far off less often than this.
UNLIKELY = 0.01


def fit_blocks(compared: Mapping[str, Compared] | None, surprise: Floats | None, tree: Tree) -> list[Block]:
    """Models that were compared, the best first, and rows that do not fit."""
    blocks = []
    if compared is not None:
        rows = [
            {
                "model": name,
                "log density of left-out rows": each.elpd,
                "difference to the best": each.difference,
                "± (standard error)": each.difference_se,
                "weight": each.weight,
                "share of rows with high k̂": each.share_high_k,
            }
            for name, each in compared.items()
        ]
        blocks += [text(describe(compared)), table(rows, caption="Leave-one-out comparison, by short chains")]
    if surprise is not None:
        order = np.argsort(surprise)
        odd = order[surprise[order] < UNLIKELY]
        names = tree.names or tuple(map(str, range(tree.n_leaves)))
        if len(odd):
            blocks.append(
                text(
                    f"{len(odd):,} of {tree.n_leaves:,} rows fit badly: a row drawn like the others is as far "
                    f"off with a probability below {UNLIKELY:g}. Each has been given the noise that it needs, so that "
                    "it does not bend the tree, and its place in the tree means little."
                )
            )
            rows = [{"row": names[i], "probability of fitting as badly": float(surprise[i])} for i in odd[:20]]
            blocks.append(table(rows, caption="Rows that do not fit" + (", the first 20" if len(odd) > 20 else "")))
        else:
            blocks.append(text("Every row fits: none is farther off than its noise explains."))
    return blocks
