import numpy as np
import pyarrow.parquet as pq
import pytest

from coaltree import Tree
from coaltree.records import RecordsError, simulate_cohort
from coaltree.records.generator import OUTCOME_CODES, draw_model
from coaltree.records.simulate import code_list, draw_shard
from tests.seeds import seed


@pytest.fixture(scope="module")
def model():
    return draw_model(np.random.default_rng(seed(1)), 5, 20.0)


def test_it_is_meds_with_all_its_traps(tmp_path):
    """On one seed: by chance a small cohort may lack a rare code or a moment."""
    import meds

    folder = simulate_cohort(tmp_path / "cohort", 400, 1, n_factors=5, events_per_year=30.0)
    table = pq.read_table(folder / "data" / "0000.parquet")
    meds.DataSchema.validate(table.drop_columns(["cost"]))
    subject, time = table["subject_id"].to_numpy(), table["time"].to_numpy().astype("datetime64[us]")
    assert (np.diff(subject) >= 0).all()  # every subject together
    code = np.array(table["code"].to_pylist())
    assert np.isnat(time[code == "GENDER//F"]).all()
    for trap in ("ICD9//431", "ICD9//V4581", "ICD9CM//25000", "HCPCS//G0108", "OBSERVATION_END", "MEDS_DEATH"):
        assert (code == trap).any(), trap
    assert (time == np.datetime64("2011-01-01", "us")).any()  # the instant after the last horizon
    assert (time == np.datetime64("2008-07-02", "us")).any()  # the first instant of the first lookback
    assert (time == np.datetime64("2008-07-02", "us") - np.timedelta64(1, "us")).any()


def test_the_truth_is_saved(truth):
    tree = Tree(truth["children"], truth["times"])
    assert tree.n_leaves == len(truth["names"]) == 21
    assert truth["coef"].shape == (21, 5)
    np.testing.assert_array_equal(truth["nodes"][:21], truth["coef"])
    assert 21 <= truth["cost_node"] < 40


def test_the_same_seed_writes_the_same_data(tmp_path):
    tables = []
    for i, number in enumerate((3, 3, 4)):
        folder = simulate_cohort(tmp_path / str(i), 30, number, n_factors=3, events_per_year=10.0)
        tables.append(pq.read_table(folder / "data"))
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])
    with pytest.raises(RecordsError, match="not empty"):
        simulate_cohort(tmp_path / "0", 30, 3)


def test_outcomes_are_as_frequent_as_meant(model):
    """Among those at risk the rates are those of the model, within five standard errors, from rare to common."""
    from scipy.stats import norm

    codes = code_list(model)
    n = 4000
    _, truth = draw_shard(np.random.default_rng(seed(2)), n, model, codes)
    risk = norm.cdf(truth["x_0"].astype(float) @ model.coef.T + model.intercept[0])
    labels = truth["labels_0"]
    for j, key in enumerate(OUTCOME_CODES):
        if key in ("coronary_disease", "kidney_disease"):  # codes of other outcomes add to these
            continue
        known = ~np.isnan(labels[:, j])
        expected, error = risk[known, j].sum(), np.sqrt((risk[known, j] * (1 - risk[known, j])).sum())
        # Labels without an event are undefined after leaving, so that those which are known have a few events more.
        assert abs(labels[known, j].sum() - expected) < 5 * error + 0.1 * expected + 1
    shares = np.nanmean(labels, axis=0)
    assert shares.min() < 0.01 < 0.05 < shares.max()


def test_cost_rises_with_its_node_and_has_zeros_and_a_tail(model):
    _, truth = draw_shard(np.random.default_rng(seed(3)), 3000, model, code_list(model))
    cost = truth["price_cost_0"]
    risk = model.cost_risk(truth["x_0"].astype(float))
    assert 0.1 < (cost == 0).mean() < 0.6
    assert np.quantile(cost, 0.99) > 5 * cost.mean()
    high, low = cost[risk > np.quantile(risk, 0.75)], cost[risk < np.quantile(risk, 0.25)]
    assert high.mean() > 2 * low.mean()
