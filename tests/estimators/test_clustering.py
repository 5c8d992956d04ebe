"""`CoalescentClustering` as its users meet it."""

import re

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import coaltree as ct
from coaltree import CoalescentClustering, memory
from coaltree.estimators.distances import directions
from coaltree.estimators.inputs import notes_on

QUICK = {"n_draws": 6, "warmup": 2, "random_state": 0}
X, CLASSES = make_blobs(36, n_features=4, centers=3, random_state=1)
NAMES = [f"row {i}" for i in range(36)]
COLUMNS = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def model():
    pandas = pytest.importorskip("pandas")
    return CoalescentClustering(**QUICK).fit(pandas.DataFrame(X, NAMES, COLUMNS))


def test_fitted_attributes(model):
    assert model.n_leaves_ == model.tree_.n_leaves == 36
    assert model.tree_.names == model.posterior_.names == tuple(NAMES)
    assert model.covariance_.shape == (4, 4)
    assert model.leaf_noise_.shape == (36,)
    assert all(values.shape[:2] == (2, model.posterior_.info["iterations"]) for values in model.trace_.values())
    assert model.warmup_ == 2
    assert model.finished_
    assert np.isfinite(model.log_evidence_)
    np.testing.assert_array_equal(model.children_, model.tree_.children)
    np.testing.assert_array_equal(model.distances_, model.tree_.times)
    assert is_valid_linkage(model.linkage_)
    np.testing.assert_array_equal(model.feature_names_in_, COLUMNS)
    assert model.posterior_.info["n_chains"] == model.convergence_.n_chains == 2


def test_number_of_clusters_is_found(model):
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(model.labels_, CLASSES) == 1.0
    assert model.cluster_scores_[3] > 0.8 > max(model.cluster_scores_[k] for k in (1, 2, 4))
    assert model.n_clusters_probability_[3] > 0.5  # of six draws
    assert model.probabilities_.min() > 0.9


@pytest.mark.parametrize(("options", "n_clusters"), [({"n_clusters": 5}, 5), ({"distance_threshold": 1e9}, 1)])
def test_number_of_clusters_is_given(options, n_clusters):
    labels = CoalescentClustering(**QUICK, **options).fit_predict(X)
    assert len(set(labels.tolist())) == n_clusters


def test_new_points(model):
    pandas = pytest.importorskip("pandas")
    new = pandas.DataFrame(X + 0.1, columns=COLUMNS)
    np.testing.assert_array_equal(model.predict(new), model.labels_)
    table = model.predict_proba(new)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    far = pandas.DataFrame(X + 30.0, columns=COLUMNS)
    assert (model.score_samples(new) > model.score_samples(far)).all()
    assert model.score(new) == pytest.approx(model.score_samples(new).mean())
    found = model.attach(new, n_places=3)
    assert found.node.shape == (36, 3)
    assert (found.probability.sum(axis=1) <= 1 + 1e-9).all()


def test_gaps_in_new_points(model):
    pandas = pytest.importorskip("pandas")
    new = pandas.DataFrame(X.copy(), NAMES, COLUMNS)
    new.iloc[::2, 1] = np.nan
    completed = model.impute(new)
    assert list(completed.index) == NAMES
    assert list(completed.columns) == COLUMNS
    assert np.isfinite(completed.to_numpy()).all()
    error = np.abs(completed["b"] - X[:, 1])[::2].mean()
    assert error < 0.5 * np.abs(X[:, 1] - X[:, 1].mean()).mean()
    np.testing.assert_array_equal(model.predict(new), model.labels_)
    np.testing.assert_array_equal(model.impute(), X)


def test_set_output_and_pipeline():
    pytest.importorskip("pandas")
    pipeline = make_pipeline(StandardScaler(), CoalescentClustering(**QUICK, n_clusters=2)).set_output(
        transform="pandas"
    )
    table = pipeline.fit_transform(X)
    assert list(table.columns) == ["coalescentclustering0", "coalescentclustering1"]
    assert pipeline.predict(X).shape == (36,)


def test_same_seed_same_tree_and_clone():
    first = CoalescentClustering(**QUICK, n_clusters=2).fit(X)
    second = clone(first).set_params(n_jobs=2).fit(X)
    assert first.posterior_.times.tobytes() == second.posterior_.times.tobytes()


@pytest.mark.parametrize(
    ("metric", "power", "condensed"),
    [("precomputed", 1, False), ("precomputed", 1, True), ("precomputed_squared", 2, False)],
)
def test_distances_give_the_same_answers(metric, power, condensed):
    # A single chain, because the starts of further ones are moved along columns, and these differ by a rotation; and a
    # short one, because rounding grows.
    brief = {**QUICK, "n_draws": 2, "n_chains": 1, "n_clusters": 3}
    table = CoalescentClustering(**brief).fit(X)
    given = (pdist(X) if condensed else cdist(X, X)) ** power
    distances = CoalescentClustering(**brief, metric=metric).fit(given)
    assert distances.n_features_in_ == len(X)
    assert distances.covariance_[0, 0] == pytest.approx(table.covariance_[0, 0], rel=1e-6)
    np.testing.assert_array_equal(distances.labels_, table.labels_)
    support = table.posterior_.clade_support(table.tree_)
    np.testing.assert_allclose(distances.posterior_.clade_support(distances.tree_), support)
    new = cdist(X[:3] + 0.3, X) ** power
    np.testing.assert_allclose(distances.score_samples(new), table.score_samples(X[:3] + 0.3), rtol=1e-5)


def test_squares_given_for_distances_are_noticed():
    with pytest.warns(UserWarning, match="triangle inequality"):
        CoalescentClustering(**QUICK, metric="precomputed", method="greedy").fit(cdist(X, X, "sqeuclidean"))


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_metrics_of_directions(metric):
    """Rows of one direction and any length are close, and new rows are compared in the same way."""
    rng = np.random.default_rng(0)
    lengths = rng.uniform(0.1, 100.0, (36, 1))
    turned = (X + 3.0 * (metric == "correlation")) * lengths
    model = CoalescentClustering(**QUICK, n_clusters=3, metric=metric).fit(turned)
    plain = CoalescentClustering(**QUICK, n_clusters=3).fit(directions(turned, metric))
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_allclose(model.score_samples(7.0 * turned[:3]), model.score_samples(turned[:3]))
    with pytest.raises(ValueError, match="leave out metric"):
        CoalescentClustering(**QUICK, metric=metric, columns="auto").fit(turned)


@pytest.mark.parametrize("covariance", ["spherical", "wishart", np.eye(4)])
def test_files(covariance, tmp_path):
    saved = CoalescentClustering(covariance=covariance, **QUICK).fit(X)
    saved.save(tmp_path / "model.npz")
    loaded = CoalescentClustering.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.score_samples(X[:5] + 0.2), saved.score_samples(X[:5] + 0.2))
    np.testing.assert_array_equal(loaded.draws_.covariances, saved.draws_.covariances)
    np.testing.assert_array_equal(loaded.labels_, saved.labels_)
    assert loaded.tree_ == saved.tree_
    assert loaded.cluster_scores_ == saved.cluster_scores_
    assert loaded.n_clusters_alternatives_ == saved.n_clusters_alternatives_
    assert loaded.trace_.keys() == saved.trace_.keys()
    assert loaded.get_params().keys() == saved.get_params().keys()
    np.testing.assert_array_equal(loaded.covariance, saved.covariance)
    assert loaded.n_draws == 6


def test_a_second_fit_forgets_how_the_first_chose_its_number():
    refitted = CoalescentClustering(**QUICK).fit(X)
    assert refitted.cluster_scores_
    refitted.set_params(n_clusters=2).fit(X)
    fresh = CoalescentClustering(2, **QUICK).fit(X)
    assert {name for name in vars(refitted) if name.endswith("_")} == {n for n in vars(fresh) if n.endswith("_")}


def test_names_survive_a_file(model, tmp_path):
    model.save(tmp_path / "model.npz")
    loaded = CoalescentClustering.load(tmp_path / "model.npz")
    assert loaded.tree_.names == tuple(NAMES)
    np.testing.assert_array_equal(loaded.feature_names_in_, COLUMNS)


def test_a_file_of_another_kind(model, tmp_path):
    model.posterior_.save(tmp_path / "posterior.npz")
    with pytest.raises(ValueError, match="not a readable"):
        CoalescentClustering.load(tmp_path / "posterior.npz")
    model.save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=r"not a readable coaltree\.TreePosterior"):
        ct.TreePosterior.load(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("options", "table", "message"),
    [
        ({}, X[:1], "minimum of 2"),
        ({}, np.ones((5, 2)), "constant"),
        ({}, np.column_stack([X, np.full(36, np.nan)]), "all NaN: \\[4\\]"),
        ({"n_clusters": 37}, X, "at most the number of rows, 36"),
        ({"n_clusters": 2, "distance_threshold": 1.0}, X, "not both"),
        ({"metric": "manhattan"}, X, "metric must be one of"),
        ({"metric": "precomputed", "covariance": "diagonal"}, np.eye(3), "needs covariance='spherical'"),
        ({"scale": "unit"}, X, "scale must be one of 'auto', 'standard', 'none'"),
        ({"scale": "standard", "metric": "cosine"}, X, "leave out metric, or columns and scale"),
    ],
)
def test_bad_input(options, table, message):
    with pytest.raises(ValueError, match=message):
        CoalescentClustering(**(QUICK | options)).fit(table)


def test_bad_new_points(model):
    with pytest.raises(ValueError, match="expecting 4 features"):
        CoalescentClustering(**QUICK, n_clusters=1).fit(X).predict(X[:, :2])
    with pytest.raises(NotFittedError):
        CoalescentClustering().score_samples(X)
    with pytest.raises(NotFittedError):
        CoalescentClustering().impute()


def test_gaps_in_the_table():
    table = X.copy()
    table[::4, 2] = np.nan
    model = CoalescentClustering(**QUICK, n_clusters=3).fit(table)
    assert adjusted_rand_score(model.labels_, CLASSES) > 0.9
    completed = model.impute()
    np.testing.assert_array_equal(completed[~np.isnan(table)], table[~np.isnan(table)])
    assert np.abs(completed - X)[::4, 2].mean() < 0.5 * np.abs(X[:, 2] - X[:, 2].mean()).mean()
    assert np.isfinite(model.score_samples(table)).all()


def test_greedy(tmp_path):
    model = CoalescentClustering(**QUICK, method="greedy").fit(X)
    assert len(model.posterior_) == 1
    assert model.n_clusters_ == 3
    np.testing.assert_array_equal(model.predict(X + 0.1), model.labels_)
    model.save(tmp_path / "model.npz")
    assert CoalescentClustering.load(tmp_path / "model.npz").tree_ == model.tree_


def test_greedy_by_neighbours(monkeypatch):
    exact = CoalescentClustering(**QUICK, method="greedy").fit(X)
    every = CoalescentClustering(**QUICK, method="greedy", neighbors=len(X) - 1).fit(X)
    np.testing.assert_array_equal(every.tree_.children, exact.tree_.children)
    np.testing.assert_allclose(every.tree_.times, exact.tree_.times, rtol=1e-8)
    # The point of it: nowhere is there room for all pairs.
    monkeypatch.setattr(memory, "available_memory", lambda: 4 * len(X) * (len(X) - 1) - 1)
    with pytest.raises(MemoryError):
        CoalescentClustering(**QUICK, method="greedy").fit(X)
    monkeypatch.setattr("coaltree.sizes.ROWS_FOR_ALL_PAIRS", 10)  # as of many rows
    monkeypatch.setattr("coaltree.posterior.partition.MOST_IN_CLOUD", 30)
    few = CoalescentClustering(**QUICK, method="greedy", neighbors=5).fit(X)
    assert few.n_clusters_ == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"neighbors": 0}, "neighbors must be"),
        ({"neighbors": 2.5}, "neighbors must be"),
        ({"neighbors": 5, "method": "auto"}, 'neighbors is for method="greedy"'),
    ],
)
def test_neighbours_that_make_no_sense(changed, message):
    with pytest.raises((TypeError, ValueError), match=message):
        CoalescentClustering(**QUICK, **{"method": "greedy"} | changed).fit(X)
    gaps = X.copy()
    gaps[0, 0] = np.nan
    with pytest.raises(ValueError, match="without missing entries"):
        CoalescentClustering(**QUICK, method="greedy", neighbors=5).fit(gaps)


# ---- tables that are hard to cluster


WIDE = "More columns (101) than rows (40): a full Φ cannot be learned from them."


def two_groups(n=40, d=3):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(n, d))
    rows[n // 2 :] += 8.0 / np.sqrt(d)
    return rows, np.repeat([0, 1], n // 2)


@pytest.mark.parametrize("columns", ["constant", "duplicated", "collinear", "more than rows"])
def test_columns_that_tell_little(columns):
    rows, groups = two_groups(d=100 if columns == "more than rows" else 3)
    more = {
        "constant": np.ones(len(rows)),
        "duplicated": rows[:, :2],
        "collinear": rows.sum(axis=1) - 2.0 * rows[:, 0],
        "more than rows": rows[:, 0],
    }[columns]
    model = CoalescentClustering(n_draws=30, warmup=60, random_state=0).fit(np.column_stack([rows, more]))
    assert model.n_clusters_ == 2
    assert adjusted_rand_score(groups, model.labels_) > 0.8
    note = model.column_notes_[0]
    told = {
        "constant": "Constant.*column.s. 3. Drop",
        "duplicated": "Copies of other columns.* 3, 4. ",
        "collinear": "linear combination",
        "more than rows": "Copies of other columns.* 100. ",
    }
    assert re.search(told[columns], note)
    others = [note for note in model.column_notes_[1:] if "vary together" not in note]
    assert others == ([] if columns != "more than rows" else [WIDE])


def test_notes_on_a_table():
    """What is amiss is told, whatever the unit or the direction of a copy; nothing is told of a good table."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(30, 3))
    model = CoalescentClustering()
    assert notes_on(model, rows) == ()
    (note,) = notes_on(model, np.column_stack([rows, 5.0 - 0.1 * rows[:, 1]]))
    assert "Copies of other columns, up to unit and sign: 3." in note
    assert notes_on(model, np.column_stack([rows, rows[:, 1] + 1e-3 * rows[:, 2] ** 2])) == ()
    gaps = np.where(rng.random(rows.shape) < 0.1, np.nan, rows)
    assert notes_on(model, gaps) == ()
    assert "Copies" in notes_on(model, np.column_stack([gaps, gaps[:, 0]]))[0]
    (note,) = notes_on(model, rows, 2.1)
    assert "these 3 count as 2.1 independent ones" in note
    assert notes_on(model, rows, 2.9) == ()
    (note,) = notes_on(model, np.round(rows))
    assert "share values in 3 of 3 columns" in note
    assert 'columns="auto"' in note
    assert notes_on(CoalescentClustering(metric="precomputed"), np.zeros((3, 3))) == ()


def test_outliers_in_a_tenth_of_the_rows():
    rows, groups = two_groups(n=60)
    far = np.arange(0, 60, 10)
    rows[far] += 60.0 * np.random.default_rng(4).normal(size=(6, 3))
    model = CoalescentClustering(n_draws=60, warmup=80, random_state=0).fit(rows)
    np.testing.assert_array_equal(np.flatnonzero(model.labels_ < 0), far)
    assert model.n_clusters_ == 2
    kept = model.labels_ >= 0
    assert adjusted_rand_score(groups[kept], model.labels_[kept]) == 1.0
    assert model.outlier_probability_[far].min() > 0.5 > model.outlier_probability_[kept].max()
    np.testing.assert_array_equal(model.probabilities_[far], model.outlier_probability_[far])
    # A new row is in a cluster, near an outlier too.
    table = model.predict_proba(rows)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(rows)[kept], model.labels_[kept])
    np.testing.assert_array_equal(model.cut(2), model.labels_)
    assert model.cut(3).max() == 2


def test_one_class_is_one_cluster():
    rows = np.random.default_rng(5).normal(size=(60, 4))
    for method in ("auto", "greedy"):
        model = CoalescentClustering(n_draws=40, warmup=80, random_state=0, method=method).fit(rows)
        assert model.n_clusters_ == 1
        assert set(model.labels_.tolist()) <= {-1, 0}
        assert model.n_clusters_probability_[1] > 0.5
        assert (model.probabilities_[model.labels_ == 0] == 1.0).all()
