"""Mixed tables as users of the estimator and of `cluster` meet them."""

import numpy as np
import pytest
from scipy.special import logsumexp

import coaltree as ct
from coaltree.frame import as_frame
from coaltree.model.guess import guess_columns
from coaltree.places import predict

pandas = pytest.importorskip("pandas")

N = 30
QUICK = {"n_draws": 12, "warmup": 30, "random_state": 0}


def make_table(seed=0, n=N):
    """Two groups that differ in every column."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % 2
    shown = pandas.DataFrame(
        {
            "size": rng.normal(10.0 + 6.0 * group, 1.0),
            "married": np.where(rng.random(n) < 0.1 + 0.8 * group, "yes", "no"),
            "grade": pandas.Categorical.from_codes(
                np.clip(group + rng.integers(0, 2, n), 0, 2), ["low", "mid", "high"], ordered=True
            ),
            "colour": np.array(["red", "green", "blue"])[np.where(group, 0, rng.integers(0, 3, n))],
            "visits": rng.poisson(2.0 + 12.0 * group),
        },
        index=[f"row {i}" for i in range(n)],
    )
    return shown, group


@pytest.fixture(scope="module")
def table():
    shown, _ = make_table()
    shown.iloc[3, 1] = None
    shown.iloc[4, 3] = None
    shown.iloc[6, 2] = None
    shown.iloc[5, 0] = np.nan
    return shown


@pytest.fixture(scope="module")
def model(table):
    return ct.CoalescentClustering(**QUICK, n_clusters=2).fit(table)


def test_numbers_beside_levels_have_a_scale_each(model, table):
    """The default: numbers alone have one for all."""
    told = ct.CoalescentClustering(covariance="diagonal", **QUICK, n_clusters=2).fit(table)
    np.testing.assert_array_equal(model.posterior_.times, told.posterior_.times)
    numbers = ct.sample_data(ct.sample_tree(9, random_state=0), 3, random_state=1)
    for how in ({}, {"columns": "auto"}):
        one = ct.CoalescentClustering(**QUICK, **how).fit(numbers)
        same = ct.CoalescentClustering(covariance="spherical", **QUICK, **how).fit(numbers)
        np.testing.assert_array_equal(one.posterior_.times, same.posterior_.times)
        assert len(np.unique(one.compact_covariance_)) == 1
    shown = table.assign(weight=np.cos(np.arange(len(table))))
    each = ct.CoalescentClustering(**QUICK).fit(shown)
    assert len(np.unique(each.compact_covariance_[~each.columns_.unit])) == np.count_nonzero(~each.columns_.unit) > 1


def test_columns_are_told(model, table):
    kinds = {each.name: each.kind for each in model.columns_.models}
    assert kinds == {
        "size": "continuous",
        "married": "binary",
        "grade": "ordinal",
        "colour": "categorical",
        "visits": "rounded" if kinds["visits"] == "rounded" else kinds["visits"],
    }
    assert any("'colour'" in note for note in model.column_notes_)
    assert model.tree_.names == tuple(table.index)
    assert model.n_features_in_ == 5
    _, group = make_table()
    agreement = np.mean(model.labels_ == group)
    assert max(agreement, 1 - agreement) > 0.9


def test_gaps_are_filled_by_levels(model, table):
    filled, shares = model.impute(probabilities=True)
    assert not filled.isna().any().any()
    assert filled["married"].dtype == "category"
    assert filled["grade"].cat.ordered
    assert list(filled["grade"].cat.categories) == ["low", "mid", "high"]
    known = table.notna()
    for name in table.columns:
        assert (filled[name].to_numpy()[known[name]] == table[name].to_numpy()[known[name]]).all()
    assert set(shares) == {"married", "grade", "colour"}
    np.testing.assert_allclose(shares["colour"].sum(axis=1), 1.0, rtol=1e-6)
    assert shares["married"].shape == (1, 2)


def test_new_rows(model):
    new, group = make_table(seed=1)
    labels = model.predict(new)
    agreement = np.mean(labels == group)
    assert max(agreement, 1 - agreement) > 0.9
    places = model.attach(new.iloc[:4], n_places=3)
    assert places.node.shape == (4, 3)
    assert (places.probability.sum(axis=1) <= 1 + 1e-9).all()
    holes = new.copy()
    holes["colour"] = None
    holes["size"] = np.nan
    filled, shares = model.impute(holes, probabilities=True)
    assert np.abs(filled["size"] - new["size"]).mean() < 2.5
    np.testing.assert_allclose(shares["colour"].sum(axis=1), 1.0, rtol=1e-6)
    red = shares["colour"]["red"].to_numpy()
    assert red[group == 1].mean() > red[group == 0].mean() + 0.3
    odd = new.iloc[[0]].assign(size=1000.0)
    assert model.score_samples(odd)[0] < model.score_samples(new).min()


def test_levels_of_a_column_share_its_density(model):
    new, _ = make_table(seed=2)
    row = new.iloc[[0]].assign(colour=None)
    for name, levels in (("married", ["no", "yes"]), ("grade", ["low", "mid", "high"])):
        of_levels = [model.score_samples(row.assign(**{name: [level]}))[0] for level in levels]
        assert logsumexp(of_levels) == pytest.approx(model.score_samples(row.assign(**{name: None}))[0], abs=1e-6)
    row = new.iloc[[0]]
    of_levels = [model.score_samples(row.assign(colour=[level]))[0] for level in ("red", "green", "blue")]
    assert logsumexp(of_levels) == pytest.approx(model.score_samples(row.assign(colour=None))[0], abs=0.1)


@pytest.mark.parametrize("covariance", ["spherical", "wishart"])
def test_numbers_have_the_density_of_the_other_engine(covariance):
    X = np.random.default_rng(0).normal(size=(25, 2)) + 5.0 * (np.arange(25) % 2)[:, None]
    kinds = {"column 1": "continuous", "column 2": "continuous"}
    model = ct.CoalescentClustering(covariance=covariance, **QUICK, columns=kinds, n_clusters=2).fit(X)
    new = np.array([[0.3, 0.4], [5.0, 6.0], [2.0, 9.0]])
    scale, centre = X.std(axis=0), X.mean(axis=0)
    fit = predict.make_fit(model.posterior_, model.completed_, model.draws_.covariances, model.draws_.leaf_noises)
    exact = predict.log_predictive(fit, (new - centre) / scale) - np.log(scale).sum()
    np.testing.assert_allclose(model.score_samples(new), exact, atol=2e-3)
    labels = predict.label_probabilities(fit, (new - centre) / scale, model.labels_)
    np.testing.assert_allclose(model.predict_proba(new), labels, atol=2e-3)


def test_files(model, table, tmp_path):
    model.save(tmp_path / "model.npz")
    loaded = ct.CoalescentClustering.load(tmp_path / "model.npz")
    new, _ = make_table(seed=3)
    np.testing.assert_array_equal(loaded.score_samples(new.iloc[:3]), model.score_samples(new.iloc[:3]))
    pandas.testing.assert_frame_equal(loaded.impute(), model.impute())
    assert loaded.column_notes_ == model.column_notes_


def test_checkpoints_and_threads(table, tmp_path):
    whole = ct.learn_posterior(table, columns="auto", n_draws=8, warmup=6, n_jobs=1)
    path = tmp_path / "run.npz"
    ct.learn_posterior(table, columns="auto", n_draws=2, warmup=6, thin=2, checkpoint=path, n_jobs=2)
    again = ct.learn_posterior(table, columns="auto", n_draws=8, warmup=6, thin=2, checkpoint=path)
    straight = ct.learn_posterior(table, columns="auto", n_draws=8, warmup=6, thin=2)
    np.testing.assert_array_equal(again.posterior.times, straight.posterior.times)
    np.testing.assert_array_equal(again.draws.entries, straight.draws.entries)
    assert whole.draws.entries.shape == (8, int(np.isnan(whole.mixed.encoded.X).sum()))


def test_what_sets_splits_apart(model):
    told = model.splits(2)
    assert told.column.shape == told.sure.shape == (N - 1, 2)
    assert (told.sure >= 0.5).all()
    assert told.sure[-1, 0] > 0.8
    assert (told.size[:, 0] >= told.size[:, 1]).all()


def test_python_and_the_command_line_agree(table, tmp_path):
    path = tmp_path / "t.csv"
    shown = table.copy()
    shown["grade"] = shown["grade"].astype(object)
    shown.to_csv(path)
    brief = {"n_draws": 4, "warmup": 5}
    by_path = ct.cluster(path, **brief, random_state=0)
    by_frame = ct.cluster(shown, **brief, random_state=0)
    np.testing.assert_array_equal(by_path.posterior_.times, by_frame.posterior_.times)
    np.testing.assert_array_equal(by_path.posterior_.children, by_frame.posterior_.children)
    written = ct.results.cluster(path, tmp_path / "out", **brief, n_jobs=1)
    np.testing.assert_array_equal(written.model.posterior_.times, by_path.posterior_.times)
    assert by_path.tree_.names == by_frame.tree_.names == tuple(table.index)


def test_polars_and_pandas_agree(table):
    polars = pytest.importorskip("polars")
    plain = table.reset_index(drop=True).astype({"grade": object})
    assert (
        guess_columns(as_frame(polars.from_pandas(plain))).columns.models
        == guess_columns(as_frame(plain)).columns.models
    )


def test_anndata():
    anndata = pytest.importorskip("anndata")
    group = np.arange(24) % 2
    values = np.random.default_rng(0).normal(size=(24, 3)) + 6.0 * group[:, None]
    data = anndata.AnnData(values)
    data.obs_names = [f"cell {i}" for i in range(24)]
    model = ct.cluster(data, n_clusters=2, **QUICK)
    assert list(data.obs["coaltree"].cat.categories) == ["0", "1"]
    np.testing.assert_array_equal(data.obs["coaltree"].astype(int), model.labels_)
    assert data.obs["coaltree_sure"].between(0, 1).all()
    assert data.uns["coaltree"]["linkage"].shape == (23, 4)
    assert data.uns["coaltree"]["expected_overlap"].shape == (23,)
    assert model.tree_.names[0] == "cell 0"
    data.obsm["X_pca"] = values[:, :2]
    assert "X_pca" in ct.cluster(data, n_clusters=2, **QUICK).column_notes_[0]
    with pytest.raises(ValueError, match="representation must be one of obsm: X_pca"):
        ct.cluster(data, representation="X_umap")


# ---- what cannot be


def test_a_level_that_the_fit_has_not_seen(model, table):
    new = table.iloc[:2].assign(colour=["red", "violet"])
    with pytest.raises(ValueError, match=r"'colour' has the level 'violet' \(row 2\).*Leave such cells empty"):
        model.predict(new)
    with pytest.raises(ValueError, match="X lacks the column"):
        model.predict(table[["size"]])
    with pytest.raises(ValueError, match="'size' must be numbers"):
        model.predict(table.assign(size="much"))


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (["a", "b"] * 15, "continuous", "cannot be continuous: it holds text"),
        (list(range(30)), "binary", "cannot be binary: it has 30 different values"),
        ([-1.0, *range(29)], "count", "cannot be a count: it holds -1"),
        ([0.5, *range(29)], "count", "cannot be a count: it holds 0.5"),
        ([f"text {i}" for i in range(300)], "categorical", "cannot be categorical: it has 300 levels"),
        ([f"{i}" for i in range(28)] + ["old", "young"], None, r"holds numbers and text \(row 29: 'old'\)"),
        ([1.0, np.inf] * 15, None, "holds infinite values"),
    ],
)
def test_columns_that_cannot_be(column, kind, message):
    shown = pandas.DataFrame({"x": column, "y": np.arange(len(column)) % 7 + 0.5})
    with pytest.raises(ValueError, match=message):
        guess_columns(as_frame(shown), {"x": kind} if kind else "auto")


def test_columns_that_are_left_out(table):
    many = pandas.DataFrame(
        {
            "text": [f"words {i // 2}" for i in range(10_000)],
            "same": 1.0,
            "none": np.nan,
            "late": ["9999-12-31", "2262-04-12"] * 5000,
            "x": np.arange(10_000.0) % 7,
        }
    )
    guessed = guess_columns(as_frame(many))
    assert guessed.columns.names == ("late", "x")
    notes = " ".join(guessed.notes)
    assert "'text' has 5,000 different texts and is left out" in notes
    assert "a single value: 'same'" in notes
    assert "no values: 'none'" in notes
    assert "'late'" not in guess_columns(as_frame(many), dates="ignore").columns.names
    assert "group them to use it" in notes
    with pytest.raises(ValueError, match=r"No column is left.*a single value: 'same'.*no values: 'none'"):
        guess_columns(as_frame(many[["same", "none"]]))
    with pytest.raises(ValueError, match="columns names 'height', not in the table"):
        guess_columns(as_frame(many), {"height": "count"})
    with pytest.raises(ValueError, match='covariance must be "spherical"'):
        ct.CoalescentClustering(covariance=np.eye(6), **QUICK).fit(table)


def test_rows_alike_in_every_level_and_levels_of_one_row():
    shown = pandas.DataFrame({"a": ["u"] * 11 + ["v"], "b": ["p", *["q"] * 10, "r"], "c": [True] * 6 + [False] * 6})
    model = ct.CoalescentClustering(n_draws=6, warmup=10, random_state=0).fit(shown)
    assert np.isfinite(model.posterior_.times).all()
    assert np.isfinite(model.score_samples(shown)).all()


def test_notes_on_levels():
    """Levels of one row are named, and a column of numbers and words says why it has levels."""
    shown = pandas.DataFrame({"a": [*["u", "v"] * 10, "w"], "m": [1.5, "two", True] * 7, "x": np.arange(21) / 7.0})
    notes = guess_columns(as_frame(shown)).notes
    assert (
        "Levels of a single row: 'w' in 'a'. They say little; group them with others if they are not needed." in notes
    )
    assert "Column 'm' is therefore taken as levels; correct those cells if it should be numbers." in notes
    twice = guess_columns(as_frame(pandas.concat([shown, shown]))).notes
    assert not any("single row" in note for note in twice)
    fewer = guess_columns(as_frame(shown.assign(m=[f"word {k}" for k in range(21)]))).notes
    assert any("'m' has 21 different texts and is left out; name it 'categorical'" in note for note in fewer)
    codes = pandas.Categorical([str(k) for k in range(21)])
    many = guess_columns(as_frame(shown.assign(m=codes))).notes
    assert any("'m' has 21 different texts and is left out; name it 'categorical'" in note for note in many)


def test_columns_that_repeat_others_count_once():
    """Up to names of levels, unit and sign; not if a kind is named, a gap differs, or an order is another."""
    rng = np.random.default_rng(0)
    x, codes = rng.normal(size=30), rng.integers(0, 3, 30)
    x[4] = np.nan
    shown = pandas.DataFrame({"x": x, "words": np.array(["u", "v", "w"])[codes], "yes": codes > 0, "grade": codes + 1})
    more = shown.assign(
        minus=5.0 - 2.0 * x,
        other=np.array(["c", "a", "b"])[codes],
        no=codes == 0,
        back=3 - codes,
        mixed=(codes * 2) % 3,
    )
    fewer = guess_columns(as_frame(more))
    assert fewer.columns.names == (*shown.columns, "mixed")
    told = "Left out because they repeat other columns, in other words or units: 'minus', 'other', 'no', 'back'."
    assert told in fewer.notes
    kept = guess_columns(as_frame(more), {"other": "categorical", "minus": "continuous"})
    assert {"other", "minus"} < set(kept.columns.names)
    more.loc[2, "other"] = None
    assert "other" in guess_columns(as_frame(more)).columns.names
    assert not any("repeat" in note for note in guess_columns(as_frame(shown)).notes)


def test_choices_of_a_file_in_python(table, tmp_path):
    """Columns and rows are chosen as on the command line, and messages name the arguments."""
    path = tmp_path / "t.csv"
    shown = table.reset_index(names="who").assign(second=np.arange(len(table)) + 1000)
    shown.loc[3, "size"] = np.nan
    shown.to_csv(path, index=False)
    brief = {"n_draws": 2, "warmup": 2}
    model = ct.cluster(path, id_column="second", drop=["who"], drop_missing=True, **brief)
    assert "1003" not in model.tree_.names
    assert set(model.tree_.names) < {str(k) for k in shown["second"]}
    assert "who" not in model.columns_.names
    told = ct.cluster(path, **brief).column_notes_
    assert any("drop_missing leaves those rows out" in note for note in told)
    with pytest.raises(ValueError, match="`id_column` 'nobody' is not a column"):
        ct.cluster(path, id_column="nobody")
    with pytest.raises(ValueError, match="`drop` names 'nothing'"):
        ct.cluster(shown, drop=["nothing"])


def test_kinds_from_toml(tmp_path):
    path = tmp_path / "kinds.toml"
    path.write_text('[columns]\nx = "ordinal"\ny = "ignore"\n')
    shown = pandas.DataFrame({"x": np.arange(20.0) % 4, "y": np.arange(20.0)})
    assert [model.kind for model in guess_columns(as_frame(shown), path).columns.models] == ["ordinal"]
    path.write_text("x = 3")
    with pytest.raises(ValueError, match=r"columns\['x'\] must be one of"):
        guess_columns(as_frame(shown), path)
    with pytest.raises(ValueError, match='columns must be "auto", a dict or a TOML file'):
        guess_columns(as_frame(shown), tmp_path / "none.toml")
