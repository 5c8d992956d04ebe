"""Probabilities of new rows sum to 1 over levels and integrate to 1 over numbers, whatever the size of the table.

Whole numbers at which the source may change its way are collected (`sizes`): each is tested below, just before and just
after it, or a reason is given why it cannot change what is predicted (`unaffected`).
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import trapezoid

import coaltree as ct
from coaltree.model.columns import Columns
from coaltree.model.kinds import BinaryLevels, Categorical, Continuous, Ordinal
from coaltree.places.gaps import Mixed
from coaltree.posterior.draws import MATRIX
from tests.acceptance.sizes import all_sizes, sizes_in
from tests.acceptance.unaffected import NAMES, reason_for
from tests.reference.places import without
from tests.reference.posteriors import make_draws, make_posterior
from tests.seeds import seed

pandas = pytest.importorskip("pandas")


def itself(size):
    return size


FOUND = all_sizes()
# By what has a size: each is predicted with, or fitted to, one less and one more.
ROWS = {  # of the table in which new rows are placed
    "places.host.MEASURED": itself,
    "model.gig.laplace._BLOCK": itself,
}
FITTED = {  # rows of a table of numbers that is fitted first
    "sizes.FULL_ROWS": itself,
    "inference.greedy.build.TABLE_FROM": itself,
    "sizes.ROWS_SORTED": itself,
    "sizes.ROWS_FOR_ALL_PAIRS": itself,
    "sizes.NEAR_ROWS": itself,
    "inference.moves.lineages.PER_BUCKET": itself,
    "inference.moves.lineages.N_PIECES": itself,
    "inference.moves.local.N_AROUND": lambda size: size // 2,  # edges
    "inference.moves.walk.FEWEST_EDGES": lambda size: size // 2,
    "inference.moves.walk.FIRST_EDGES": lambda size: size // 2,
    "inference.moves.walk.MOST_EDGES": lambda size: size // 2,
    "inference.neighbors.BRUTE_AT_ONCE": itself,
    "inference.neighbors.BRUTE_MOST": itself,
    "posterior.hierarchy.MOST_ROWS": itself,
}
FITTED_MIXED = {  # rows of a mixed table that is fitted first
    "sizes.ROWS_DRAWN_IN_TURNS": itself,
    "sizes.ROWS_PROBED": itself,
}
# What is tested by itself, in the test named.
OTHERS = {
    "sizes.FULL_ROWS_PER_COLUMN": "wide tables",
    "model.diffusion._BLOCK": "wide tables",
    "model.diffusion._FEW_COLUMNS": "wide tables",
    "sizes.POINTS_AT_ONCE": "many new rows",
    "regression.fit.BLOCK": "many new rows",
    "sizes.LABEL_ENTRIES": "many clusters",
    "sizes.DRAWS_OF_MIXED": "many draws",
    "sizes.COORDINATES_DRAWN": "many draws",
    "sizes.ROWS_LEFT_OUT": "rows left out",
    "sizes.MIXED_LEFT_OUT": "rows left out",
    "model.guess.MOST_LEVELS": "many levels",
    "model.guess.MOST_ORDINAL": "many levels",
    "model.kinds.levels.MOST_CATEGORIES": "many levels",
}
TESTED = ROWS | FITTED | FITTED_MIXED | OTHERS
# Tables of more rows take longer than a few seconds: their tests are slow.
MOST_AT_ONCE, MOST_FITTED = 2001, 400


def around(name, size=itself):
    """Just below and just above, whether the source compares with < or ≤."""
    return size(FOUND[name]) - 1, size(FOUND[name]) + 1


def cases(sizes, most):
    """Cases of pytest: one per number of rows, those of more than `most` slow."""
    found = sorted({n for name, size in sizes.items() for n in around(name, size)})
    return [pytest.param(n, marks=[pytest.mark.slow] if n > most else []) for n in found]


def test_sizes_are_found_in_the_source():
    source = "MANY, few = 50, 3\nMORE: int = 2 * MANY\nSHARE = 0.5\nif n <= MANY or 600 < len(X):\n    pass"
    assert sizes_in(source) == {"MANY": 50, "MORE": 100, "600 < len(X)": 600}


def test_every_size_is_tested_or_cannot_matter():
    new = {name: size for name, size in FOUND.items() if name not in TESTED and reason_for(name) is None}
    assert not new, (
        f"{new}: is anything predicted in another way beyond? Then add it to ROWS, FITTED, FITTED_MIXED or OTHERS in "
        "test_probabilities.py, with a test of OTHERS on both sides of it; if not, say why in unaffected.py."
    )
    assert not {*TESTED, *NAMES} - {*FOUND}, "not in the source any more: take these out"
    assert not {*TESTED} & {*NAMES}, "tested, and said not to matter"


COLUMNS = Columns(
    (
        Continuous("a"),
        BinaryLevels("b", ("x", "y")),
        Categorical("c", ("r", "s", "t")),
        Continuous("e"),
        Ordinal("o", ("low", "mid", "high")),
    )
)
CUTS = np.array([0.0, 0.0, 0.9])
NOISE = 0.2


def posed(trees, table, covariance, cells=None, columns=COLUMNS, cuts=CUTS):
    """A model with these trees as its draws, over the rows of a table; over coordinates, if there are cells."""
    n, n_trees, d = len(table), len(trees), len(covariance)
    model = ct.CoalescentClustering(random_state=0)
    model.mixed_ = model.columns_ = None
    compact = np.diag(covariance) if np.count_nonzero(covariance) == d else covariance
    model.draws_ = make_draws(trees, compact[None], np.full(n, NOISE))
    if cells is not None:
        encoded = columns.encode(cells)
        latent = np.repeat(table[np.isnan(encoded.X)][None], n_trees, axis=0).astype(np.float32)
        kept = {"index": np.arange(n_trees), "entries": latent, "cuts": np.repeat(cuts[None], n_trees, axis=0)}
        model.draws_ = replace(model.draws_, **kept)
        model.mixed_, model.columns_ = Mixed(columns, cells, (), encoded, model.draws_), columns
    model.posterior_ = make_posterior(trees, np.full(n_trees, 1.0 / n_trees))
    model.completed_, model.effective_columns_ = table, float(d)
    model.n_features_in_, model.incomplete_ = d if cells is None else cells.shape[1], np.zeros(n, dtype=bool)
    model.compact_covariance_, model.leaf_noise_, model.tree_ = compact, np.full(n, NOISE), trees[0]
    model.labels_ = trees[0].cut(n_clusters=3)
    return model


def fitted(n, covariance, mixed, n_trees=1):
    """A model fitted to n rows, with draws from the prior: trees, and coordinates given them."""
    rng = np.random.default_rng(seed(n))
    trees = [ct.sample_tree(n, random_state=rng) for _ in range(n_trees)]
    table = ct.sample_data(trees[0], covariance, leaf_noise=NOISE, random_state=rng)
    return posed(trees, table, covariance, COLUMNS.decode(table, CUTS) if mixed else None)


def rows_of(**cells):
    """Rows of the mixed table, empty but for some columns."""
    n = max(len(values) for values in cells.values())
    empty = {"a": np.nan, "b": None, "c": None, "e": np.nan, "o": None}
    return pandas.DataFrame({name: cells.get(name, [value] * n) for name, value in empty.items()})


FULL = np.eye(3) + 0.4 * (1 - np.eye(3))
# Fine near the rows, and far out, where the edge above the root gives tails; finer for noise that is learned.
STRETCHED, FINE = np.linspace(-6.0, 6.0, 61), np.linspace(-8.0, 8.0, 801)
GRID = np.sinh(STRETCHED) / 4.0


def integral(log_density, stretched=STRETCHED):
    return trapezoid(np.exp(log_density) * np.cosh(stretched) / 4.0, stretched)


def check_levels(n):
    """Levels of a row about which nothing else is known, and given the rest of it against its rest alone."""
    model = fitted(n, np.eye(6), mixed=True)
    for name, levels in (("b", ["x", "y"]), ("c", ["r", "s", "t"]), ("o", ["low", "mid", "high"])):
        assert np.exp(model.score_samples(rows_of(**{name: levels}))).sum() == pytest.approx(1.0, abs=5e-4)
    rest = {"a": [0.3], "e": [-0.2], "c": ["s"]}
    both = rows_of(b=["x", "y"], **{name: cells * 2 for name, cells in rest.items()})
    expected = np.exp(model.score_samples(rows_of(**rest))[0])
    assert np.exp(model.score_samples(both)).sum() == pytest.approx(expected, rel=1e-3)


def check_number(n, covariance):
    """The density of one column, the others missing; and given another column."""
    model = fitted(n, covariance, mixed=False)
    alone, beside = np.full((2, len(GRID), 3), np.nan)
    alone[:, 1] = beside[:, 1] = GRID
    beside[:, 0] = 0.4
    assert integral(model.score_samples(alone)) == pytest.approx(1.0, abs=5e-3)
    density = np.exp(model.score_samples(np.array([[0.4, np.nan, np.nan]]))[0])
    assert integral(model.score_samples(beside)) == pytest.approx(density, rel=5e-3)


@pytest.mark.parametrize("n", cases(ROWS, MOST_AT_ONCE))
def test_levels_of_a_row_sum_to_one(n):
    check_levels(n)


@pytest.mark.parametrize("n", cases(ROWS, MOST_AT_ONCE))
@pytest.mark.parametrize("covariance", [np.eye(3), FULL], ids=["diagonal", "full"])
def test_density_of_a_number_integrates_to_one(n, covariance):
    check_number(n, covariance)


@pytest.mark.slow
@pytest.mark.ci
def test_tables_of_many_rows_lose_nothing():
    check_levels(20_000)
    check_number(20_000, np.eye(3))


@pytest.mark.parametrize("n", cases(ROWS, MOST_AT_ONCE))
def test_a_number_beside_levels_integrates_to_one(n):
    model = fitted(n, np.eye(6), mixed=True)
    assert integral(model.score_samples(rows_of(a=GRID))) == pytest.approx(1.0, abs=5e-3)
    beside = rows_of(a=GRID, b=["x"] * len(GRID))
    expected = np.exp(model.score_samples(rows_of(b=["x"]))[0])
    assert integral(model.score_samples(beside)) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("n", cases(ROWS, MOST_AT_ONCE))
def test_probabilities_of_clusters_and_places_sum_to_one(n):
    model = fitted(n, np.eye(6), mixed=True)
    new = rows_of(a=[0.3, np.nan], b=["x", None], e=[np.nan, np.nan])
    np.testing.assert_allclose(model.predict_proba(new).sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(model.attach(new, 2 * n - 1).probability.sum(axis=1), 1.0, rtol=1e-9)


# ---- fits


def check_fit(n, d=3, **options):
    """Fit a table of numbers; then the density of one column integrates to 1, and clusters' probabilities sum to 1."""
    options = {"warmup": 2, "n_draws": 2, "n_chains": 1, "n_clusters": 2, "random_state": 0} | options
    model = ct.CoalescentClustering(**options).fit(np.random.default_rng(seed(n)).normal(size=(n, d)))
    rows = np.full((len(FINE), d), np.nan)
    rows[:, 1] = np.sinh(FINE) / 4.0
    assert integral(model.score_samples(rows), FINE) == pytest.approx(1.0, abs=5e-3)
    np.testing.assert_allclose(model.predict_proba(rows[::250]).sum(axis=1), 1.0, rtol=1e-9)


@pytest.mark.parametrize("n", cases(FITTED, MOST_FITTED))
def test_densities_after_a_fit_integrate_to_one(n):
    check_fit(n)
    check_fit(n, method="greedy")


@pytest.mark.parametrize("n", cases(FITTED_MIXED, MOST_FITTED))
def test_levels_after_a_fit_sum_to_one(n):
    table = COLUMNS.decode(np.random.default_rng(seed(n)).normal(size=(n, COLUMNS.d)), CUTS)
    frame = pandas.DataFrame({"a": table[:, 0], "b": np.where(table[:, 1] > 0, "y", "x"), "e": table[:, 3]})
    options = {"warmup": 2, "n_draws": 2, "n_chains": 1, "n_clusters": 2, "random_state": 0}
    model = ct.CoalescentClustering(**options).fit(frame)
    new = pandas.DataFrame({"a": np.nan, "b": ["x", "y"], "e": np.nan})
    assert np.exp(model.score_samples(new)).sum() == pytest.approx(1.0, abs=5e-4)
    np.testing.assert_allclose(model.predict_proba(new).sum(axis=1), 1.0, rtol=1e-9)


WIDE = [  # rows and columns; blocks of rows are for tables of more columns than few
    *((n, 20) for n in around("sizes.FULL_ROWS_PER_COLUMN", lambda size: 20 * size)),
    *((n, FOUND["model.diffusion._FEW_COLUMNS"] + 1) for n in around("model.diffusion._BLOCK")),
    *((60, d) for d in around("model.diffusion._FEW_COLUMNS")),
]


@pytest.mark.parametrize(("n", "d"), WIDE)
def test_densities_of_wide_tables_integrate_to_one(n, d):
    check_fit(n, d)


# ---- other sizes


@pytest.mark.parametrize("n", [20, pytest.param(501, marks=[pytest.mark.slow, pytest.mark.ci])])
def test_many_new_rows_are_predicted_as_each_of_them(n):
    model = fitted(n, FULL, mixed=False)
    for n_points in around("sizes.POINTS_AT_ONCE"):
        points = np.random.default_rng(seed(n)).normal(size=(n_points, 3))
        points[:, 2] = np.nan  # one pattern of gaps: batches keep the order of the rows
        some = np.array([0, n_points // 2, n_points - 2, n_points - 1])
        np.testing.assert_allclose(model.score_samples(points)[some], model.score_samples(points[some]), atol=1e-3)
        np.testing.assert_allclose(model.predict_proba(points).sum(axis=1), 1.0, rtol=1e-9)


def test_many_new_rows_of_a_regression_are_predicted_as_each_of_them():
    rng = np.random.default_rng(seed(1))
    X, y = rng.normal(size=(40, 1)), rng.integers(0, 2, 40)
    model = ct.CoalescentProbit(n_iter=20, burn_in=10, n_chains=1, random_state=0).fit(X, y)
    for n_points in around("regression.fit.BLOCK", lambda size: size // 10):
        points = rng.normal(size=(n_points, 1))
        probability = model.predict_proba(points)
        np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(probability[-2:], model.predict_proba(points[-2:]), rtol=1e-12)


@pytest.mark.parametrize("n_clusters", around("sizes.LABEL_ENTRIES", lambda size: size // 4000))
def test_probabilities_of_many_clusters_sum_to_one(n_clusters):
    model = fitted(2000, np.eye(3), mixed=False)
    model.labels_ = np.arange(2000) % n_clusters
    found = model.predict_proba(np.array([[0.1, 0.2, np.nan], [3.0, np.nan, np.nan]]))
    assert found.shape[1] == n_clusters
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)


DRAWS = [(20, m) for name in ("DRAWS_OF_MIXED", "COORDINATES_DRAWN") for m in around(f"sizes.{name}")]


@pytest.mark.parametrize(("n", "n_trees"), DRAWS)
def test_levels_of_many_draws_sum_to_one(n, n_trees):
    model = fitted(n, np.eye(6), mixed=True, n_trees=n_trees)
    new = rows_of(b=["x", "y"])
    assert np.exp(model.score_samples(new)).sum() == pytest.approx(1.0, abs=5e-4)
    for table in model.impute(new, probabilities=True)[1].values():
        np.testing.assert_allclose(np.asarray(table).sum(axis=1), 1.0, rtol=1e-9)


LIMITS = ("guess.MOST_ORDINAL", "guess.MOST_LEVELS", "kinds.levels.MOST_CATEGORIES")
N_LEVELS = sorted({n for name in LIMITS for n in around(f"model.{name}")})


@pytest.mark.parametrize("n_levels", N_LEVELS)
def test_many_levels_sum_to_one(n_levels):
    columns = Columns((Ordinal("o", tuple(f"level {k:03}" for k in range(n_levels))), Continuous("a")))
    rng, cuts = np.random.default_rng(seed(n_levels)), np.linspace(0.0, 3.0, n_levels - 1)
    tree = ct.sample_tree(30, random_state=rng)
    table = ct.sample_data(tree, np.eye(2), leaf_noise=NOISE, random_state=rng)
    model = posed([tree], table, np.eye(2), columns.decode(table, cuts), columns, cuts)
    new = pandas.DataFrame({"o": list(columns.models[0].levels), "a": np.nan})
    assert np.exp(model.score_samples(new)).sum() == pytest.approx(1.0, abs=5e-4)


def left_out(tree, table, covariance, cells=None):
    """Leave-one-out from enough draws, all but alike: the density given one tree without the row."""
    model = posed([tree] * 26, table, covariance, cells)
    covariances = np.array([model.compact_covariance_ * (1.0 + 1e-6 * m) for m in range(26)])
    model.draws_ = replace(model.draws_, phi={MATRIX: covariances})
    if model.mixed_ is not None:
        model.mixed_ = replace(model.mixed_, draws=model.draws_)
    return model.leave_one_out()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("n", around("sizes.ROWS_LEFT_OUT"))
def test_density_of_a_row_left_out_is_that_of_a_new_row(n):
    """The density of new rows integrates to 1, as tested above."""
    tree = ct.sample_tree(n, random_state=seed(n))
    table = ct.sample_data(tree, FULL, leaf_noise=NOISE, random_state=seed(n))
    found = left_out(tree, table, FULL)
    assert len(found.rows) == min(n, FOUND["sizes.ROWS_LEFT_OUT"])
    for h in (0, len(found.rows) // 2, len(found.rows) - 1):
        row = found.rows[h]
        others = posed([without(tree, row)], np.delete(table, row, axis=0), FULL)
        assert found.log_density[h] == pytest.approx(others.score_samples(table[[row]])[0], abs=5e-3)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("n", around("sizes.MIXED_LEFT_OUT"))
def test_levels_of_a_row_left_out_sum_to_one(n):
    """Cells of every row are changed, and coordinates, on which those of other rows depend, are not."""
    tree = ct.sample_tree(n, random_state=seed(n))
    table = ct.sample_data(tree, np.eye(6), leaf_noise=NOISE, random_state=seed(n))
    total = 0.0
    for level in range(2):
        cells = np.full((n, 5), np.nan)
        cells[:, 1] = level
        found = left_out(tree, table, np.eye(6), cells)
        assert len(found.rows) == min(n, FOUND["sizes.MIXED_LEFT_OUT"])
        total = total + np.exp(found.log_density)
    np.testing.assert_allclose(total, 1.0, atol=2e-3)
