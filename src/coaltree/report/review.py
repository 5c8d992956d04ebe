"""The sections of a report that reviewers ask for: Table 1, curves, calibration, decisions, subgroups, drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coaltree.records.privacy import FEWEST
from coaltree.records.review import FEWEST_GROUPS, N_RESAMPLES, Review
from coaltree.report.blocks import figure, table, text
from coaltree.report.drivers import driver_blocks
from coaltree.report.page import Block
from coaltree.rows import Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CALIBRATION = "Calibration"
_KINDS = ("roc", "precision", "calibration", "benefit")


def draw_review(review: Review | None) -> dict[str, Figure]:
    """Return the figures of a review by file name."""
    if review is None or not review.curves:
        return {}
    from coaltree.plots.records import plot_outcome_curves

    return {f"outcomes-{kind}": plot_outcome_curves(review.curves, kind) for kind in _KINDS}


def with_commas(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with bounds such as "4368+" written as other numbers on a page are, "4,368+"."""
    return [{key: _with_commas(value) for key, value in row.items()} for row in rows]


def _with_commas(value: Any) -> Any:
    is_bound = isinstance(value, str) and value.endswith("+") and value[:-1].isdigit()
    return f"{int(value[:-1]):,}+" if is_bound else value


def outcome_blocks(outcomes: Rows, thresholds: Sequence[str] = ("",)) -> list[Block]:
    """Return the counts of every outcome at each threshold and, separately, its definition, which may be long."""
    blocks = []
    for threshold in thresholds:
        ending = f" {threshold}" if threshold else ""
        rows = [
            {key.removesuffix(ending): value for key, value in row.items() if key == "outcome" or key.endswith(ending)}
            for row in outcomes
        ]
        where = f"Threshold {threshold}: events" if threshold else "Events"
        names = [name for name in rows[0] if name != "codes"] if rows else []
        blocks.append(
            table(
                with_commas(rows),
                f"{where} in the horizon, labels that are undefined, and the share who left before theirs was known",
                columns=names,
            )
        )
    return [
        *blocks,
        table(
            outcomes, "Definitions: prefixes, ranges of prefixes, and x for any character", columns=["outcome", "codes"]
        ),
    ]


def table_one_blocks(review: Review | None) -> list[Block]:
    """Return Table 1."""
    if review is None or not review.table_one:
        return []
    return [table(review.table_one, "Table 1: the cohorts on day 0", sortable=False)]


def review_sections(review: Review | None, figures: dict[str, Figure], level: float) -> list[tuple[str, list[Block]]]:
    """Return headings and blocks; the calibration section is always present."""
    if review is None:
        return [(CALIBRATION, [])]
    band = (
        f"Between two points are at least {FEWEST} subjects with the event and as many without; outcomes with too few "
        f"for {FEWEST_GROUPS} such groups are not drawn. Bands: {level:.0%} pointwise bootstrap intervals, "
        f"{N_RESAMPLES} resamples; {review.what}."
    )

    def picture(kind: str, alt: str, caption: str) -> list[Block]:
        name = f"outcomes-{kind}"
        return [figure(figures[name], alt, caption)] if name in figures else []

    sections = [
        (
            "ROC and precision–recall curves",
            [
                *picture("roc", "ROC curve of every outcome.", f"ROC curves of the coalescent regression. {band}"),
                *picture(
                    "precision",
                    "Precision by recall of every outcome.",
                    f"Precision by recall; dashed: the share of events. {band}",
                ),
            ],
        ),
        (
            CALIBRATION,
            picture(
                "calibration",
                "Observed by predicted rates of every outcome.",
                "Each outcome by groups of rising prediction, with 95% intervals; groups are as many as have no fewer "
                f"than {FEWEST} events; {review.what}.",
            ),
        ),
        (
            "Decision curves",
            picture(
                "benefit",
                "Net benefit by threshold probability of every outcome.",
                "Net benefit of acting on those whose probability is at least that on the axis; dashed: acting on "
                f"everybody, zero: on nobody. {band}",
            ),
        ),
    ]
    found = [section for section in sections if section[1] or section[0] == CALIBRATION]
    if not review.curves:
        few = f"No outcome has {FEWEST_GROUPS} groups of {FEWEST} subjects with the event and as many without to draw."
        found.insert(0, ("ROC, precision–recall and decision curves", [text(few)]))
    if review.subgroups:
        found.append(
            (
                "Subgroups",
                [
                    text("Areas under the ROC curve within groups, with bootstrap intervals; few events are withheld."),
                    *_subgroup_tables(review),
                ],
            )
        )
    if review.drivers:
        found.append(("What drives each outcome", driver_blocks(review.drivers, level)))
    return found


def _subgroup_tables(review: Review) -> list[Block]:
    """A table by sex and one by age: one row per outcome, one column per group that has a score."""
    scored = [row for row in review.subgroups if row["auroc"] == row["auroc"]]
    blocks = []
    for title, is_age in (("sex", False), ("age", True)):
        rows: dict[str, dict[str, str]] = {}
        mine = [row for row in scored if str(row["group"]).startswith("age") == is_age]
        for row in mine:
            name = "mean of those shown" if str(row["outcome"]).startswith("mean") else str(row["outcome"])
            area = f"{row['auroc']:.3g} ({row['low']:.3g} to {row['high']:.3g})"
            rows.setdefault(name, {"outcome": name})[str(row["group"])] = area
        groups = dict.fromkeys(str(row["group"]) for row in mine)
        if rows:
            caption = f"Area under the ROC curve by {title}, {review.what}"
            blocks.append(table(list(rows.values()), caption, columns=["outcome", *groups]))
    return blocks
