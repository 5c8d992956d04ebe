"""The edges of rules, day by day, and bootstraps that follow their seed: what one changed sign would break."""

import datetime
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse, stats

from coaltree.records import CohortRule, RecordsError, build_cohort, count_codes, open_events
from coaltree.records.bundle import _write_scores
from coaltree.records.cohort import CLOSED, Cohort
from coaltree.records.config import IndexConfig
from coaltree.records.cost import Costs, cost_curves, node_separation
from coaltree.records.dataset import index_days, index_periods
from coaltree.records.features import measured_values
from coaltree.records.labels import Labels
from coaltree.records.privacy import WITHHELD, shown_part, shown_parts
from coaltree.records.review import Group, _banded, outcome_curves, rounded_rates, subgroup_rows, table_one
from coaltree.regression.comparison import Comparison
from coaltree.regression.scores import CalibrationTable
from tests.records.patients import write_meds
from tests.seeds import seed

DAY_0 = datetime.datetime(2010, 1, 1)


def at(offset, **time):
    return DAY_0 + datetime.timedelta(days=offset, **time)


@pytest.mark.parametrize("washout", [1, 30, 365])
def test_a_code_on_the_first_day_of_the_washout_counts(tmp_path, washout):
    """A day is an index day if no such code came in the `washout` days before it."""
    rows = [(1, at(0), "X"), (1, at(washout), "X"), (2, at(0), "X"), (2, at(washout + 1), "X")]
    events = open_events(write_meds(tmp_path / "meds", rows))
    index = IndexConfig(codes={"codes": ["X"]}, washout_days=washout, begin=datetime.date(2010, 1, 2))
    found = {s: str(np.datetime64(day, "D")) for s, day in index_days(events, index).items()}
    assert found == {2: str(at(washout + 1).date())}


@pytest.mark.parametrize("closed", CLOSED)
def test_windows_begin_and_end_where_they_say(tmp_path, closed):
    """Codes at both ends of every day near an edge, in the lookback of 30 days and in windows of 5 and 30 days."""
    horizon = "left" if closed in ("left", "neither") else "right"
    rule = CohortRule(lookback_days=30, lookback_closed=closed, horizon_closed=horizon)
    days = (-40, -31, -30, -29, -6, -5, -4, -1, 0, 1)
    last = {"microseconds": 86_400_000_000 - 1}
    rows = [(s, at(d, **time), f"D//{d}", float(d)) for s, time in ((1, {}), (2, last)) for d in days]
    rows += [(s, at(d), f"D//{d}", float(d)) for s, shift in ((0, -90), (3, 90)) for d in (shift - 1,)]
    events = open_events(write_meds(tmp_path / "meds", [*rows, (1, at(500), "D//later", None)]))
    # Others' thresholds are earlier and later: every subject has edges of its own.
    thresholds = {s: at(shift).date() for s, shift in ((0, -90), (1, 0), (2, 0), (3, 90))}
    cohort = build_cohort(events, thresholds, rule)

    def within(length, d):
        begins = d >= -length if closed in ("left", "both") else d > -length
        return begins and (d <= 0 if closed in ("right", "both") else d < 0)

    plain = count_codes(events, cohort)
    many = count_codes(events, cohort, windows=[5, 30])
    for counts, ending, length in ((plain, "", 30), (many, " [5 days]", 5), (many, " [30 days]", 30)):
        column = dict(zip(counts.codes, counts.matrix.toarray().T, strict=True))
        for d in days:
            assert column[f"D//{d}{ending}"].tolist() == [0, *[int(within(length, d))] * 2, 0], (ending, d)
    values, names = measured_values(events, cohort, many, [5])
    for d in days:
        assert (f"D//{d} [last value]" in names) == within(5, d), d
    assert (~np.isnan(values[:, : len(names) // 2])).sum(axis=1).tolist() == [
        1,
        *[sum(within(5, d) for d in days)] * 2,
        1,
    ]


def test_rates_of_rounded_numbers_have_the_interval_of_wilson():
    n, events = np.array([10, 19, 105, 1_234]), np.array([0, 12, 40, 1_200])
    unused = np.zeros(4)
    found = rounded_rates(
        CalibrationTable(n, events, np.full(4, 0.123456), events / n, n.astype(float), unused, unused)
    )
    assert found.n.tolist() == [10, 12, 100, 1_230]
    np.testing.assert_allclose(found.observed, events / found.n)
    exact = [stats.binomtest(k, m).proportion_ci(method="wilson") for k, m in zip(events, found.n, strict=True)]
    np.testing.assert_allclose(np.column_stack([found.low, found.high]), exact, atol=1e-12)


def test_index_events_on_both_sides_of_a_split(tmp_path):
    """A horizon that ends the day before the split is complete; one that reaches it is in neither period."""
    rule = CohortRule(horizon_days=10)
    last = rule.horizon[1]
    events = open_events(write_meds(tmp_path / "meds", [(s, at(d), "X") for s, d in ((1, 0), (2, 1), (3, last + 1))]))
    index = {"codes": {"codes": ["X"]}}
    split = at(last + 1).date()
    periods = index_periods(events, IndexConfig(**index, split=split), rule)
    assert [list(found) for _, found in periods] == [[1], [3]]
    for day, name in ((at(0), "before"), (at(last + 2), "after")):
        with pytest.raises(RecordsError, match=f"no index event {name} split {day.date()}"):
            index_periods(events, IndexConfig(**index, split=day.date()), rule)


def cohort_of(n, born=None, closed="left"):
    rule = CohortRule(lookback_closed=closed, horizon_closed="right" if closed == "both" else "left")
    return Cohort(np.arange(n), np.full(n, 14_610), np.full(n, 15_000), np.zeros(n, bool), rule, (("all", n),), born)


def test_a_part_of_a_cohort_is_a_step_of_its_selection_only_for_a_reason():
    cohort = cohort_of(20)
    assert cohort.take(np.arange(12)).attrition == (("all", 20),)
    assert cohort.take(np.arange(12), "are tall").attrition == (("all", 20), ("are tall", 12))
    assert len(cohort.take(np.zeros(20, bool))) == 0
    with pytest.raises(RecordsError, match="are tall"):
        cohort.take(np.zeros(20, bool), "are tall")


def test_table_one_counts_everybody_once():
    """An age on the edge of two bands is in the upper one; women, men and neither."""
    born = np.repeat([0, 14_610 - 14_000], [40, 25])  # on day 0 exactly 40 years, and 38
    female = np.repeat([1.0, 0.0, np.nan], [20, 30, 15])
    labels = Labels(cohort_of(65, born), np.zeros((65, 1)), np.zeros((65, 1), bool), np.zeros((65, 1), bool))
    rows = table_one([Group("T", labels, female, np.zeros(65))], ["x"])
    found = {row["characteristic"]: row["T"] for row in rows}
    expected = {"age 18 to 39": 25, "age 40 to 54": 40, "women": 20, "men": 30, "sex not known": 15}
    assert {name: found[name] for name in expected} == {name: f"{k} ({k / 65:.1%})" for name, k in expected.items()}


def test_a_band_is_of_all_resamples_and_not_of_the_data():
    """The first row is the curve, every other one a resample."""
    found = _banded(np.zeros(1), np.array([[7.0], [1.0], [2.0], [5.0]]), 1.0)
    assert (found.y, found.low, found.high) == (7.0, 1.0, 5.0)


@pytest.mark.parametrize(("closed", "last"), [("left", "2009-12-31"), ("both", "2010-01-01")])
def test_risks_are_those_at_the_end_of_the_lookback(tmp_path, closed, last):
    outcomes = SimpleNamespace(outcomes=[SimpleNamespace(key="x")])
    file = _write_scores(
        tmp_path / "a", cohort_of(2, closed=closed), SimpleNamespace(outcomes=outcomes), np.ones((2, 1))
    )
    times = pq.read_table(file)["prediction_time"].to_pylist()
    assert times == [datetime.datetime.fromisoformat(f"{last}T23:59:59.999999")] * 2


# ---- seeds


def compared(number):
    rng = np.random.default_rng(seed(41))
    y = (rng.random(600) < 0.3).astype(float)
    p = np.clip(0.3 + 0.2 * (y - 0.3) + 0.1 * rng.standard_normal(600), 0.01, 0.99)
    parts = p[None, :, None]
    return Comparison(("m",), ("x",), y[:, None], np.zeros(600, int), parts, parts, np.ones((1, 1)), 50, number)


def of_costs():
    rng = np.random.default_rng(seed(42))
    daily = rng.exponential(100.0, (200, 30)) * (rng.random((200, 30)) < 0.2)
    costs = Costs(sparse.csr_matrix(daily), np.full(200, 30), np.zeros(200, bool), {})
    return costs, rng.random((200, 3))


def curves_of_cost(number):
    costs, risk = of_costs()
    found = cost_curves(costs, risk[:, 0], n_resamples=20, random_state=number)
    return found.low, found.high


def error_of_nodes(number):
    costs, risk = of_costs()
    return (node_separation(costs, risk, n_resamples=20, random_state=number).shortfall_error,)


def subgroups(number):
    n = 600
    cohort = Cohort(np.arange(n), np.full(n, 14_000), np.full(n, 15_000), np.zeros(n, bool), CohortRule())
    rows = subgroup_rows(compared(number), "m", cohort, (np.arange(n) % 2).astype(float), 0.9)
    return ([row["low"] for row in rows], [row["high"] for row in rows])


BOOTSTRAPS = {
    "areas": lambda number: (compared(number).resampled_auroc,),
    "curves": lambda number: tuple(
        part for found in outcome_curves(compared(0), "m", 0.9, number) for part in (found.roc.low, found.benefit.high)
    ),
    "subgroups": subgroups,
    "cost curves": curves_of_cost,
    "cost nodes": error_of_nodes,
}


@pytest.mark.parametrize("name", BOOTSTRAPS)
def test_a_bootstrap_follows_its_seed(name):
    once, again, other = (BOOTSTRAPS[name](number) for number in (1, 1, 2))
    for a, b in zip(once, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(once, other, strict=True))


def test_a_part_is_hidden_if_the_rest_of_its_total_is_small():
    assert shown_part(60, 100) == 60
    assert isinstance(shown_part(95, 100), str)
    assert isinstance(shown_part(5, 100), str)


def test_the_smallest_bound_of_a_large_part_is_shown():
    assert shown_parts([20, 1]) == ["11+", "<11"]  # of 21, up to ten are in the other part
    assert shown_parts([19, 1]) == [WITHHELD, WITHHELD]
    assert shown_parts([40, 30, 1]) == ["31+", 30, "<11"]
    assert shown_parts([39, 30, 1]) == ["30+", 30, "<11"]
    assert shown_parts([38, 30, 1]) == [WITHHELD] * 3  # else the bound would say less than that it is the largest
