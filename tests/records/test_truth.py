"""Cohort, labels, counts and costs of the engine against the generator's truth and against plain loops over rows."""

import datetime

import numpy as np
import pytest

from coaltree.records import (
    CohortRule,
    build_cohort,
    build_labels,
    count_codes,
    future_costs,
    load_outcomes,
    load_prices,
)
from coaltree.records.codes import normalise
from coaltree.records.generator import ALSO, COMPLICATIONS, DIABETES, OUTCOME_CODES
from coaltree.records.simulate import THRESHOLDS
from tests.reference.records import study

OUTCOMES = load_outcomes()
CODES = [{*codes, *(code for code, also in ALSO.items() if key in also)} for key, codes in OUTCOME_CODES.items()]


@pytest.mark.parametrize("which", [0, 1])
def test_equal_to_the_generators_truth(events, truth, cohort_folder, which):
    cohort = build_cohort(events, THRESHOLDS[which], inclusion=OUTCOMES.inclusion)
    eligible = truth[f"eligible_{which}"]
    np.testing.assert_array_equal(cohort.subject, truth["subject_id"][eligible])
    assert 0.9 < eligible.mean() < 1.0  # some are kept out

    labels = build_labels(events, cohort, OUTCOMES)
    np.testing.assert_array_equal(labels.Y, truth[f"labels_{which}"][eligible])
    assert np.isnan(labels.Y).any()
    assert (labels.Y == 1.0).any(axis=0).sum() >= 15

    counts = count_codes(events, cohort)
    position = {code: j for j, code in enumerate(counts.codes)}
    row = {subject: i for i, subject in enumerate(cohort.subject)}
    expected = np.zeros(counts.matrix.shape, dtype=np.int64)
    for subject, code, n in zip(*(truth[f"count{k}_{which}"] for k in ("_subject", "_code", "")), strict=True):
        text, number = truth["codes"][code], truth["subject_id"][subject]
        if text in position and number in row:
            expected[row[number], position[text]] = n
    np.testing.assert_array_equal(counts.matrix.toarray(), expected)

    prices = load_prices(cohort_folder / "prices.csv")
    billed, paid = future_costs(events, cohort, prices), future_costs(events, cohort)
    np.testing.assert_allclose(billed.total, truth[f"price_cost_{which}"][eligible], rtol=0, atol=1e-6)
    np.testing.assert_allclose(paid.total, truth[f"paid_cost_{which}"][eligible], rtol=0, atol=1e-6)
    assert set(billed.unpriced) >= {"HCPCS//A4253", "HCPCS//G0108", "HCPCS//J1815"}


RULES = {
    "default": CohortRule(),
    "days 1 to 365, like other tools": CohortRule(lookback_closed="both", horizon_closed="right", lookback_days=365),
    "open ends": CohortRule(lookback_closed="neither", horizon_closed="neither", horizon_days=90),
    "both": CohortRule(lookback_closed="left", horizon_closed="both", death="negative"),
    "strict": CohortRule(prior_outcome="remove", min_follow_up_days=200, inclusion_days=120),
    "loose": CohortRule(prior_outcome="keep", data_end=datetime.date(2009, 6, 30)),
}


def compare(events, rows, threshold, rule, prices):
    """Whether the engine and the loops agree, as a list of what does not."""
    expected = study(
        rows,
        threshold,
        rule,
        {*DIABETES, *COMPLICATIONS},
        CODES,
        prices,
        normalise,
    )
    labels = build_labels(events, build_cohort(events, threshold, rule, OUTCOMES.inclusion), OUTCOMES)
    cohort = labels.cohort
    if cohort.subject.tolist() != list(expected):
        return ["subjects"]
    wrong = []
    wanted = np.array([found["labels"] for found in expected.values()], dtype=np.float64)
    if not np.array_equal(labels.Y, wanted, equal_nan=True):
        wrong.append("labels")
    counts = count_codes(events, cohort)
    table = counts.matrix.toarray()
    for i, found in enumerate(expected.values()):
        got = {counts.codes[j]: int(table[i, j]) for j in np.flatnonzero(table[i])}
        kept = {code: n for code, n in found["counts"].items() if code in counts.codes}
        if got != kept:
            wrong.append("counts")
            break
    for name, costs in (("billed", future_costs(events, cohort, prices)), ("paid", future_costs(events, cohort))):
        if not np.allclose(costs.total, [found[name] for found in expected.values()], rtol=0, atol=1e-6):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("name", RULES)
def test_equal_to_plain_loops_under_every_rule(events, rows, cohort_folder, name):
    prices = load_prices(cohort_folder / "prices.csv")
    assert compare(events, rows, datetime.date(2009, 1, 1), RULES[name], prices) == []


def test_one_threshold_a_subject(events, rows, cohort_folder):
    prices = load_prices(cohort_folder / "prices.csv")
    first = datetime.date(2008, 9, 1)
    thresholds = {subject: first + datetime.timedelta(days=subject % 400) for subject in range(1, 500)}
    assert compare(events, rows, thresholds, CohortRule(), prices) == []


def test_a_day_more_is_seen(events, rows, cohort_folder):
    """Negative control: the comparison notices a window that is one day off."""
    prices = load_prices(cohort_folder / "prices.csv")
    rule = CohortRule()
    expected = study(rows, datetime.date(2009, 1, 1), rule, {*DIABETES, *COMPLICATIONS}, CODES, prices, normalise)
    shifted = build_cohort(events, "2009-01-02", rule, OUTCOMES.inclusion)
    kept = np.isin(shifted.subject, list(expected))
    labels = build_labels(events, shifted.take(kept), OUTCOMES)
    wanted = np.array([expected[subject]["labels"] for subject in labels.cohort.subject], dtype=np.float64)
    assert not np.array_equal(labels.Y, wanted, equal_nan=True)
