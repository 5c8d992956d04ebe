"""Leave-one-out density of rows of mixed tables: against refits without the row, and between kinds of columns."""

import math

import numpy as np
import pytest
from scipy import stats

import coaltree as ct
from coaltree.model.columns import Columns
from coaltree.model.factorisations import root_of
from coaltree.model.kinds import BinaryLevels, Categorical, Continuous, Rounded
from coaltree.model.truncated import largest_probabilities
from coaltree.places import leave_one_out
from coaltree.places.cells import observe_cells
from coaltree.places.host import make_host
from coaltree.places.rows import locate_row, see
from coaltree.posterior import left_out
from coaltree.randomness import make_streams
from tests.seeds import seed

pandas = pytest.importorskip("pandas")


def make_table(n, rng):
    tree = ct.sample_tree(n, random_state=rng)
    z = ct.sample_data(tree, 6, leaf_noise=0.05, random_state=rng)
    z -= np.median(z, axis=0)
    return pandas.DataFrame(
        {
            "number": 5.0 + 2.0 * z[:, 0],
            "whole": np.rint(50.0 + 5.0 * z[:, 1]),
            "yes": np.where(z[:, 2] > 0.0, "yes", "no"),
            "grade": pandas.Categorical.from_codes(np.digitize(z[:, 3], [-0.5, 0.5]), list("abc"), ordered=True),
            "count": np.floor(np.exp(2.0 + z[:, 4])),
        }
    )


def test_largest_utility():
    """Of two levels in closed form; of more against simulation, and in the tail where simulation sees nothing."""
    means = np.array([[0.0, 1.5], [0.0, 30.0], [4.0, -1.0]])
    found = np.empty((3, 2))
    largest_probabilities(means, np.full(3, 1.3), found)
    gap = (means[:, 0] - means[:, 1]) / (1.3 * math.sqrt(2.0))
    np.testing.assert_allclose(np.log(found[:, 0]), stats.norm.logcdf(gap), rtol=1e-4, atol=1e-6)
    rng = np.random.default_rng(seed(2))
    means = rng.normal(size=(1, 6))
    found = np.empty((1, 6))
    largest_probabilities(means, np.array([0.7]), found)
    assert found.sum() == pytest.approx(1.0, abs=1e-5)
    drawn = np.argmax(means + 0.7 * rng.normal(size=(40_000, 6)), axis=1)
    share = np.bincount(drawn, minlength=6) / 40_000
    assert np.all(np.abs(share - found[0]) < 5.0 * np.sqrt(found[0] / 40_000) + 1e-4)


def test_density_by_columns_is_that_of_all_together():
    """A diagonal covariance given as a matrix goes the way of a full one, which simulates."""
    rng = np.random.default_rng(seed(3))
    columns = Columns(
        (
            Continuous("x"),
            BinaryLevels("b", ("no", "yes")),
            Categorical("c", ("r", "g", "b")),
            Rounded("r", step=0.5),
        )
    )
    tree = ct.sample_tree(7, random_state=rng)
    Z, noise = ct.sample_data(tree, columns.d, leaf_noise=0.1, random_state=rng), np.full(7, 0.1)
    phi = np.array([2.0, 1.0, 1.0, 1.0, 0.5])
    cells, cuts = np.array([0.4, 1.0, 2.0, 0.5]), np.zeros(1)
    streams = make_streams(rng, 401)

    def density(phi, stream):
        root = root_of(phi)
        row = see(observe_cells(columns, cells, cuts, phi), root, stream)
        return locate_row(make_host(tree, root.whiten(Z), noise), row, 0.1).log_density[0]

    exact = density(phi, streams[0])
    simulated = np.exp([density(np.diag(phi), stream) for stream in streams[1:]])
    error = simulated.std() / math.sqrt(len(simulated))
    assert abs(simulated.mean() - math.exp(exact)) < 4.0 * error
    # Negative control: another level of the category has another density.
    cells[2] = 0.0
    assert abs(simulated.mean() - math.exp(density(phi, streams[0]))) > 4.0 * error


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("noise", ["learn", "robust"])
def test_density_without_a_row_is_that_of_a_fit_without_it(noise):
    table = make_table(16, np.random.default_rng(seed(4)))
    table.iloc[1, 2] = None
    how = {"columns": {"whole": "rounded", "count": "count"}, "leaf_noise": noise, "n_clusters": 2}
    how |= {"n_draws": 80, "warmup": 60, "random_state": 0}
    model = ct.CoalescentClustering(**how).fit(table)
    found = model.leave_one_out()
    rows = (0, 1, 7)
    expected = []
    for i in rows:
        rest = ct.CoalescentClustering(**how).fit(table.drop(index=i))
        expected.append(rest.score_samples(table.iloc[[i]])[0])
    gap = found.log_density[list(rows)] - expected
    assert np.abs(gap).max() < 1.0
    assert abs(gap.mean()) < 0.5
    # Negative control: with the row itself in the fit it looks likelier by far more than the error above.
    assert model.score_samples(table).mean() > found.log_density.mean() + 0.5


@pytest.mark.slow
@pytest.mark.ci
def test_kinds_of_a_column_are_compared_in_its_own_units(monkeypatch):
    """Rows that share values on a coarse grid: who takes them for exact must not win by being infinitely right."""
    rng = np.random.default_rng(seed(5))
    tree = ct.sample_tree(40, random_state=rng)
    table = pandas.DataFrame(np.rint(ct.sample_data(tree, 4, leaf_noise=0.05, random_state=rng)), columns=list("abcd"))
    how = {"n_draws": 40, "warmup": 60, "n_clusters": 2, "random_state": 0}

    def fit(kind, table=table):
        return ct.CoalescentClustering(columns=dict.fromkeys(table.columns, kind), **how).fit(table)

    rounded, exact = fit("rounded").leave_one_out(), fit("continuous")
    assert abs(exact.leave_one_out().elpd - rounded.elpd) < 40.0
    # The unit of a column counts: of four columns the log of the factor each, a row. Another rounding is another chain.
    moved = fit("rounded", 10.0 * table).leave_one_out()
    assert rounded.elpd - moved.elpd == pytest.approx(4 * 40 * math.log(10.0), abs=12.0)
    # Negative control: by the density of exact values, which has no bound where noise has none.
    how["leaf_noise"] = 1e-6
    exact = fit("continuous")
    assert exact.leave_one_out().elpd < rounded.elpd
    monkeypatch.setattr(leave_one_out, "smooth", lambda f, rows, n, g: left_out.smooth(f, rows, n))
    assert exact.leave_one_out().elpd > rounded.elpd + 200.0


@pytest.mark.slow
@pytest.mark.ci
def test_auto_chooses_for_mixed_tables(tmp_path):
    table = make_table(14, np.random.default_rng(seed(6)))
    how = {"n_draws": 30, "warmup": 30, "n_chains": 1, "n_clusters": 2, "random_state": 0}
    model = ct.CoalescentClustering(covariance="auto", leaf_noise="auto", columns="auto", **how).fit(table)
    assert {"spherical", "diagonal", "wishart"} <= set(model.compare_)
    assert any(name.endswith(", robust") for name in model.compare_)
    model.save(tmp_path / "model.npz")
    again = ct.CoalescentClustering.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.leave_one_out().log_density, model.leave_one_out().log_density)


def test_too_few_rows():
    table = pandas.DataFrame({"a": ["u", "v"], "b": [True, False]})
    model = ct.CoalescentClustering(n_draws=4, warmup=4, random_state=0).fit(table)
    with pytest.raises(ValueError, match="at least three rows"):
        model.leave_one_out()
