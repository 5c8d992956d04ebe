"""The report on a model applied elsewhere: what it is, who was scored, and how well it did where outcomes are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coaltree.records.bundle import EXTERNAL, Application
from coaltree.records.config import PROBIT
from coaltree.records.review import WHY_WITHHELD, calibration_rows, summary_rows, withheld
from coaltree.report.blocks import facts, note, table, text
from coaltree.report.methods import leaving_text, window_text
from coaltree.report.page import Page
from coaltree.report.records import CARD_LIMITS, model_card
from coaltree.report.review import (
    CALIBRATION,
    draw_review,
    outcome_blocks,
    review_sections,
    table_one_blocks,
    with_commas,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.95
_FEW_CODES = 0.5  # of the model's codes; with fewer, the model sees little of these records


def draw_application(found: Application) -> dict[str, Figure]:
    """Return the figures of an application by file name."""
    return draw_review(found.review)


def write_application(found: Application, figures: dict[str, Figure], path: str | Path) -> None:
    """Write the page."""
    title = f"{found.model.info['title']}: applied to other records"
    page = Page(title, subtitle=f"Threshold {found.threshold}; {found.n_subjects:,} subjects")
    page.section("Summary", text(*_summary(found)), *_warnings(found))
    page.section("Model card", facts(model_card(found.model)), text(*CARD_LIMITS))
    page.section(
        "Who was scored",
        table(found.attrition, "Subjects left after each rule", sortable=False),
        *table_one_blocks(found.review),
        facts({"source": found.source, "codes of the model that occur here": _codes(found)}),
    )
    page.section("Outcomes", *outcome_blocks(found.outcomes))
    if found.comparison is not None:
        rows = found.tables(LEVEL)[f"scores-{EXTERNAL}"]
        columns = ["outcome", "auroc", "auroc_low", "auroc_high", "auprc", "brier"]
        columns += ["calibration_intercept", "calibration_slope"]
        page.section(
            "External validation",
            table(rows, f"Scores with {LEVEL:.0%} bootstrap intervals", columns=columns),
            *(
                [note(f"{WHY_WITHHELD}: {', '.join(withheld(found.comparison))}.")]
                if withheld(found.comparison)
                else []
            ),
        )
        for heading, blocks in review_sections(found.review, figures, LEVEL):
            pooled: list[Any] = []
            if heading == CALIBRATION:
                groups = calibration_rows(found.comparison)
                names = ["group", "labels", "events", "predicted", "observed", "low", "high"]
                pooled = [
                    table(with_commas(groups), "By groups of rising prediction, all outcomes pooled", columns=names)
                ]
            page.section(heading, *pooled, *blocks)
    page.section(
        "Methods",
        text(
            f"{window_text(found.model.rule)} Cohort, outcomes, codes and factors are those of the model; nothing was "
            "fitted to these records. Subjects whose horizon is not over have undefined labels and are scored all the "
            "same. Probabilities of subjects are in a private file, not here.",
            leaving_text(found.model.rule, found.model.info.get("censoring", "drop")),
        ),
    )
    page.write(path)


def _codes(found: Application) -> str:
    known, total = found.known_codes
    return f"{known:,} of {total:,}"


def _summary(found: Application) -> list[str]:
    lines = [f"The model was applied to {found.n_subjects:,} subjects of {found.source}; {_codes(found)} codes occur."]
    means = [] if found.comparison is None else summary_rows(found.comparison, LEVEL)
    if not means:
        lines.append("No outcome has enough events here to judge it by.")
        return lines
    own = next(row for row in means if row["method"] == PROBIT)
    lines.append(
        f"Its mean area under the ROC curve here ({EXTERNAL} validation) is {own['auroc']:.3f} "
        f"({own['auroc_low']:.3f} to {own['auroc_high']:.3f}); the median calibration slope is "
        f"{own['calibration_slope']:.2f}."
    )
    return lines


def _warnings(found: Application) -> list[Any]:
    blocks = [note(line, kind="warning") for line in found.notes]
    known, total = found.known_codes
    if known < _FEW_CODES * total:
        blocks.append(
            note(
                f"Only {_codes(found)} codes of the model occur in these records. They may be of other vocabularies: "
                "the scores mean little until codes are mapped.",
                kind="warning",
            )
        )
    return blocks
