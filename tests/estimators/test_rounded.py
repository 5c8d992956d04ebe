"""Tables of nothing but numbers on grids: what a fit with `columns` makes of them."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.frame import as_frame
from coaltree.model.guess import FINE, guess_columns
from coaltree.model.tables import make_table
from coaltree.places.gaps import Mixed
from coaltree.places.leave_one_out import leave_one_out, leave_one_out_mixed

pandas = pytest.importorskip("pandas")

QUICK = {"n_draws": 20, "warmup": 20, "random_state": 0}
NAMED = {f"c{j}": "rounded" for j in range(4)}  # few whole numbers would be grades


def rounded(n=60, d=4, steps=3.0, seed=0):
    """Numbers whose standard deviation is so many steps of their grid, and that vary together."""
    rng = np.random.default_rng(seed)
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), d, leaf_noise=0.05, random_state=rng)
    X = X @ (0.4 * np.eye(d) + 1.0)
    return pandas.DataFrame(np.rint(steps * X / X.std(axis=0)), columns=[f"c{j}" for j in range(d)])


def kinds(table, columns="auto"):
    return [(model.kind, not model.is_drawn) for model in guess_columns(as_frame(table), columns).columns.models]


def test_fine_grids_are_exact_in_a_table_of_numbers():
    assert kinds(rounded(steps=1.5 * FINE), NAMED) == [("rounded", True)] * 4
    coarse = rounded(steps=1.5 * FINE).assign(c1=rounded(steps=0.5 * FINE)["c1"])
    assert kinds(coarse, NAMED) == [("rounded", False)] * 4
    with_levels = rounded(steps=1.5 * FINE).assign(c1=np.arange(60) % 2 == 0)
    assert kinds(with_levels, NAMED | {"c1": "binary"})[::2] == [("rounded", False)] * 2


def test_whole_numbers_are_counts_if_their_logarithms_are_less_skewed():
    growing = np.floor(np.exp(np.random.default_rng(0).normal(1.5, 0.8, 1000)))
    # A column of the public table "letter": scores from 0 to 15, whose logarithms are as skewed to the other side.
    shares = [422, 1084, 2693, 3424, 3199, 2982, 2340, 1422, 1013, 436, 235, 150, 158, 120, 184, 138]
    scores = np.repeat(np.arange(16.0), np.array(shares) // 20)[np.arange(1000) % 990]
    assert kinds(pandas.DataFrame({"a": growing, "b": scores})) == [("count", False), ("rounded", False)]


@pytest.mark.parametrize(("gaps", "covariance"), [(False, "spherical"), (True, "spherical"), (False, "shrunk")])
def test_such_a_table_has_the_posterior_of_its_numbers(gaps, covariance):
    """Rounding bounds the noise, and columns that vary together count for what they are worth."""
    table = rounded()
    if gaps:
        table = table.mask(np.random.default_rng(1).random(table.shape) < 0.1)
    X = ((table - table.mean()) / table.std(ddof=0)).to_numpy()
    plain = ct.learn_posterior(X, covariance, **QUICK)
    learned = ct.learn_posterior(table, covariance, columns=NAMED, **QUICK)
    assert 1.0 < plain.effective_columns <= (3.9 if covariance == "spherical" else 4.0)
    assert learned.effective_columns == pytest.approx(plain.effective_columns, rel=1e-6)
    np.testing.assert_array_equal(learned.posterior.children, plain.posterior.children)
    np.testing.assert_allclose(learned.posterior.times, plain.posterior.times, rtol=1e-6)
    all_columns = ct.learn_posterior(table, columns=NAMED, effective_columns="all", **QUICK)
    assert all_columns.effective_columns == 4.0


def test_other_covariances_have_cells():
    """Their noise is not bounded by rounding: rows that share all values would make it vanish."""
    table = rounded(n=30)
    table.iloc[1] = table.iloc[0]
    model = ct.CoalescentClustering(covariance="diagonal", columns=NAMED, n_clusters=2, **QUICK).fit(table)
    assert [(each.kind, not each.is_drawn) for each in model.columns_.models] == [("rounded", False)] * 4
    assert model.draws_.entries.shape == (20, 120)
    assert model.effective_columns_ == 4.0
    assert model.leaf_noise_[0] > 1e-6


def test_gaps_are_filled_on_the_grid(tmp_path):
    table = rounded().mask(np.random.default_rng(1).random((60, 4)) < 0.1)
    model = ct.CoalescentClustering(columns=NAMED, n_clusters=2, checkpoint=tmp_path / "run.npz", **QUICK).fit(table)
    filled = model.impute()
    known = table.notna().to_numpy()
    np.testing.assert_array_equal(filled.to_numpy()[known], table.to_numpy()[known])
    assert np.all(filled.to_numpy() == np.rint(filled.to_numpy()))
    again = ct.CoalescentClustering(columns=NAMED, n_clusters=2, checkpoint=tmp_path / "run.npz", **QUICK).fit(table)
    pandas.testing.assert_frame_equal(again.impute(), filled)
    model.save(tmp_path / "model.npz")
    loaded = ct.CoalescentClustering.load(tmp_path / "model.npz")
    pandas.testing.assert_frame_equal(loaded.impute(), filled)
    assert loaded.columns_.models[0].is_drawn is False


@pytest.mark.parametrize("power", [0.4, 1.0])
def test_leave_one_out_has_the_weights_of_the_chain(power):
    """The engine of mixed tables agrees with that of numbers, also where the likelihood is raised to a power."""
    rng = np.random.default_rng(0)
    X = ct.sample_data(ct.sample_tree(40, random_state=rng), 3, leaf_noise=0.1, random_state=rng)
    learned = ct.learn_posterior(X, n_draws=60, warmup=40)
    plain = leave_one_out(learned.posterior, X, learned.draws, power)
    mixed = Mixed.of(make_table(X, guess_columns(as_frame(X), scale="none")), learned.draws)
    draws = (learned.posterior, X)
    found = leave_one_out_mixed(mixed, *draws, power)
    np.testing.assert_allclose(found.log_density, plain.log_density, atol=0.02)
    other = leave_one_out_mixed(mixed, *draws, 1.4 - power)
    assert np.abs(other.log_density - plain.log_density).max() > 0.1
