"""Subjects who leave: Kaplan–Meier against a loop, weights against enumeration, risks against what happened."""

import numpy as np
import pytest
from benchmarks.censoring import observe, risks, simulate

from coaltree.records import CohortRule
from coaltree.records.censoring import MOST, censoring_weights, exposures, leaving_groups, still_observed
from coaltree.records.cohort import Cohort
from coaltree.records.config import load_config
from coaltree.records.errors import RecordsError
from coaltree.records.labels import Labels
from coaltree.report.methods import leaving_text
from tests.seeds import seed

NAN = np.nan


def staying(time, left, day):
    """P(observed on a day): a loop over days, each a share of those at risk; events come before leaving."""
    found = 1.0
    for d in range(day):
        at_risk = sum(t > d or (t == d and gone) for t, gone in zip(time, left, strict=True))
        leaving = sum(t == d and gone for t, gone in zip(time, left, strict=True))
        found *= 1.0 - leaving / at_risk if at_risk else 1.0
    return found


def labels_of(Y, prior, censored, time):
    n, rule = len(Y), CohortRule(horizon_days=10)
    cohort = Cohort(np.arange(n), np.zeros(n, int), np.zeros(n, int), np.zeros(n, bool), rule)
    return Labels(cohort, np.array(Y, float), np.array(prior), np.array(censored), np.array(time))


def test_weights_by_hand():
    """Ten days: leave on days 2 and 5, events on days 2 and 7, one masked who leaves on day 1, three to the end."""
    Y = [[NAN], [NAN], [1], [1], [NAN], [0], [0], [0]]
    prior = [[False]] * 4 + [[True]] + [[False]] * 3
    censored = [[True], [True], [False], [False], [True], [False], [False], [False]]
    time = [[2], [5], [2], [7], [1], [9], [9], [9]]
    weights = censoring_weights(labels_of(Y, prior, censored, time))[:, 0]
    # The event on day 2 is known to all of 7; on day 2 one of the other 6 leaves, on day 5 one of 5.
    stay = np.array([1.0, 5 / 6 * 4 / 5])
    raw = np.array([1.0 / stay[0], *[1.0 / stay[1]] * 4])
    np.testing.assert_allclose(weights[[2, 3, 5, 6, 7]], raw * raw.sum() / (raw**2).sum())
    assert weights[[0, 1, 4]].tolist() == [0.0, 0.0, 0.0]
    assert raw.sum() == pytest.approx(7.0)  # known labels stand for all who are at risk
    assert weights.sum() == pytest.approx(raw.sum() ** 2 / (raw**2).sum())


def test_kaplan_meier_against_a_loop():
    rng = np.random.default_rng(seed(1))
    time, left = rng.integers(0, 12, 60), rng.random(60) < 0.4
    found = still_observed(time + left, left, 12, np.ones((1, 60)))[0]
    np.testing.assert_allclose(found, [staying(time, left, day) for day in range(12)], atol=1e-12)
    twice = rng.integers(0, 3, 60)
    found = still_observed(time + left, left, 12, twice[None].astype(float))[0]
    many = np.repeat(time, twice), np.repeat(left, twice)
    np.testing.assert_allclose(found, [staying(*many, day) for day in range(12)], atol=1e-12)


def test_weights_are_bounded_and_one_without_leaving():
    rng = np.random.default_rng(seed(2))
    n = 300
    time = np.where(np.arange(n) < 3, 9, 5)[:, None]
    censored = np.arange(n)[:, None] >= 3
    Y = np.where(censored, NAN, np.arange(n)[:, None] == 0)
    found = censoring_weights(labels_of(Y, np.zeros((n, 1), bool), censored, time))  # 3 of 300 stay: 1/G is 100
    np.testing.assert_allclose(found[:3], 1.0)
    Y[10:13], censored[10:13], time[10:13] = 1.0, False, 2  # events with weight 1 beside those of MOST
    found = censoring_weights(labels_of(Y, np.zeros((n, 1), bool), censored, time))
    assert found[0, 0] / found[10, 0] == pytest.approx(MOST)
    whole = labels_of(rng.integers(0, 2, (n, 2)), np.zeros((n, 2), bool), np.zeros((n, 2), bool), np.full((n, 2), 9))
    np.testing.assert_allclose(censoring_weights(whole), 1.0, rtol=1e-12)


def test_groups_follow_who_leaves():
    rng = np.random.default_rng(seed(3))
    X = rng.normal(size=(4000, 3))
    left = rng.random(4000) < 1.0 / (1.0 + np.exp(-1.5 * X[:, 0]))
    groups = leaving_groups(X, left)
    share = np.array([left[groups == g].mean() for g in range(groups.max() + 1)])
    assert len(share) == 10
    assert share[-1] - share[0] > 0.6
    assert leaving_groups(X, np.zeros(4000, bool)).max() == 0  # nobody leaves
    assert leaving_groups(np.ones((4000, 1)), left).max() == 0  # nothing is known


@pytest.mark.parametrize("by_risk", [False, True])
def test_risks_are_right_when_subjects_leave(tmp_path, by_risk):
    """Mean risk within three standard errors of the truth; without weights, the control, it is far off."""
    rng = np.random.default_rng(seed(4))
    table, happened = simulate(3000, 0.6, by_risk, rng)
    labels, counts = observe(table, tmp_path)
    assert 0.5 < labels.lost[:, 1].mean() < 0.65
    assert (labels.Y[labels.time_at_risk[:, 1] < 30, 1] == 1).any()
    X, risk = np.sqrt(counts.matrix.toarray()), happened.mean(axis=0)
    # Of the mean of labels with these weights, beside that of all.
    error = np.sqrt(risk * (1 - risk) * (1.0 / labels.weights.sum(axis=0) + 1.0 / len(X)))
    for weights, right in ((labels.weights, True), (None, False)):
        counted = ~np.isnan(labels.Y) if weights is None else weights
        found = np.average(np.nan_to_num(labels.Y), axis=0, weights=counted)
        fitted = risks(labels.Y, weights, X, X, n_iter=40)
        for estimate in (found, *(p.mean(axis=0) for p in fitted.values())):
            close = np.abs(estimate - risk) < 3.0 * error
            assert close.all() == right, (estimate, risk, error)


def test_settings_and_what_the_report_says(tmp_path):
    file = tmp_path / "study.toml"
    text = '[data]\npath = "."\n[cohort]\nthresholds = ["2009-01-01"]\n[outcomes]\n'
    file.write_text(text)
    assert load_config(file).outcomes.censoring == "weights"
    assert load_config(file).cohort.death == "negative"
    file.write_text(text + 'censoring = "weight"')
    with pytest.raises(RecordsError, match=r"censoring.*weights"):
        load_config(file)
    weights, drop = (leaving_text(CohortRule(), censoring) for censoring in ("weights", "drop"))
    assert "competing risk" in weights
    assert "assumes" in weights
    assert "overstated" in drop
    assert "world without death" in leaving_text(CohortRule(death="censor"), "weights")


def test_days_at_risk_by_hand():
    """Ten days: events count half a day, leaving a whole one, the dead the rest of those like them."""
    Y = [[NAN], [1], [0], [NAN], [0], [0]]
    prior = [[False]] * 3 + [[True]] + [[False]] * 2
    censored = [[True], [False], [False], [True], [False], [False]]
    time = [[4], [2], [1], [3], [9], [9]]  # leaves, event, dies, masked, stays, stays
    found = exposures(labels_of(Y, prior, censored, time))[:, 0]
    # On day 4 one of three leaves: after day 1 come three whole days (2, 3, 4) and five of two thirds.
    np.testing.assert_allclose(found, np.array([5.0, 2.5, 2.0 + 3.0 + 5 * 2 / 3, 0.0, 10.0, 10.0]) / 10)


def test_rates_of_days_at_risk_are_right_when_subjects_leave(tmp_path):
    """1 − exp(−events / exposure) within three standard errors of the risk; with the dead cut off it is too high."""
    rng = np.random.default_rng(seed(5))
    table, happened = simulate(6000, 0.6, False, rng)
    labels, _ = observe(table, tmp_path)
    risk = happened.mean(axis=0)
    error = np.sqrt(risk * (1 - risk) * (1.0 / labels.weights.sum(axis=0) + 1.0 / len(happened)))
    found = -np.expm1(-np.nansum(labels.events, axis=0) / labels.exposure.sum(axis=0))
    assert (np.abs(found - risk) < 3.0 * error).all(), (found, risk, error)
    share = np.nansum(labels.events, axis=0) / np.sum(~np.isnan(labels.events), axis=0)
    assert (np.abs(share - risk) > 3.0 * error).any()  # the control: who left is taken as free of events
