"""A larger simulated cohort: what the study finds is what was planted."""

import numpy as np
import pytest

pytest.importorskip("ibis", reason="the extra `records` is not installed")

from coaltree import records
from coaltree.records.config import PROBIT
from coaltree.records.dataset import prepare_data
from coaltree.records.evaluation import fit_all
from tests.seeds import seed

pytestmark = pytest.mark.slow

CONFIG = """
[data]
path = "cohort"
[cohort]
thresholds = ["2009-01-01", "2010-01-01"]
[features]
n_factors = 25
exclude = ["HCPCS//"]
[model]
n_iter = 300
burn_in = 100
n_chains = 1
baselines = ["ml_probit"]
[validation]
n_folds = 3
n_resamples = 200
[cost]
source = "prices"
prices = "cohort/prices.csv"
n_resamples = 50
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recovery")
    records.simulate_cohort(folder / "cohort", 5000, seed(1))
    (folder / "study.toml").write_text(CONFIG)
    return folder


def test_the_tree_helps_and_cost_finds_its_node(folder):
    config = records.load_config(folder / "study.toml")
    result = records.run_study(config, folder / "private")
    for comparison in (result.cross_validation, result.temporal):
        (difference,) = comparison.differences(PROBIT, mean_only=True)
        assert difference["difference"] > 0.0
        assert difference["probability_above"] > 0.9

    data = prepare_data(config, folder / "private")
    fits, _ = fit_all(data, config, folder / "private")
    with (
        np.load(folder / "cohort" / "truth" / "model.npz") as model,
        np.load(folder / "cohort" / "truth" / "shard-0000.npz") as shard,
    ):
        rows = np.isin(shard["subject_id"], data.periods[0].cohort.subject)
        true_risk = shard["x_0"][rows] @ model["nodes"].T
        planted = int(model["cost_node"])
    found = fits["features"]["train"] @ fits[PROBIT]["node_coef"][result.separation.best]
    likeness = [abs(np.corrcoef(found, true_risk[:, node])[0, 1]) for node in range(true_risk.shape[1])]
    # Factors are noisy copies of the true regressors, so that likeness counts by rank: the planted node or one as near.
    assert likeness[planted] > 0.95 * max(likeness)
    quarters = result.curves.mean[:, -1]
    assert (np.diff(quarters) > 0).all()
    assert quarters[-1] > 1.5 * quarters[0]
