"""Comparison: out of fold, paired, resumable, the same two at a time; NA where nothing can be said."""

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.ensemble import RandomForestClassifier

from coaltree.regression import scores
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import Comparison, compare
from coaltree.rows import Rows
from tests.fuzz.damage import damaged
from tests.seeds import seed


class Counting:
    """A linear score along one feature, which writes a line for every fit."""

    def __init__(self, feature, log=None):
        self.feature, self.log = feature, log

    def fit(self, X, Y):
        self.n_outcomes_ = Y.shape[1]
        if self.log is not None:
            with open(self.log, "a") as file:
                file.write("fit\n")
        return self

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-X[:, self.feature]))
        return np.repeat(p[:, None], self.n_outcomes_, axis=1)


class Memory:
    """Knows the labels of the rows it was fitted on, and nothing else."""

    def fit(self, X, Y):
        self.known_ = {tuple(x): y for x, y in zip(X, Y, strict=True)}
        self.n_outcomes_ = Y.shape[1]
        return self

    def predict_proba(self, X):
        return np.array([self.known_.get(tuple(x), np.full(self.n_outcomes_, 0.5)) for x in X])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(seed(41))
    X = rng.normal(size=(300, 3))
    Y = (X[:, :1] + rng.normal(size=(300, 3)) > [0.5, 1.5, 2.2]).astype(float)
    Y[::11, 1] = np.nan
    return X, Y


@pytest.fixture(scope="module")
def result(data):
    models = {"good": Counting(0), "bad": Counting(1), "ml": BASELINES["ml_logit"]()}
    return compare(models, *data, n_folds=5, outcomes=["a", "b", "c"], n_resamples=200)


def test_scores_are_those_of_the_predictions(data, result):
    X, Y = data
    assert result.auroc.shape == (3, 3)
    assert result.auroc[0, 2] == scores.auroc(Y[:, 2], X[:, 0], result.folds)
    rows = result.table()
    assert [(row["outcome"], row["method"]) for row in rows[:4]] == [
        ("a", "good"),
        ("a", "bad"),
        ("a", "ml"),
        ("b", "good"),
    ]
    row = rows[3]
    assert row["events"] == np.nansum(Y[:, 1])
    assert row["n"] == np.count_nonzero(~np.isnan(Y[:, 1]))
    assert row["auroc_low"] < row["auroc"] < row["auroc_high"]
    assert row["log_loss"] == scores.log_loss(Y[:, 1], result.probability[0, :, 1])
    summary = {row["method"]: row for row in result.summary()}
    assert summary["good"]["auroc"] == pytest.approx(result.auroc[0].mean())
    assert summary["good"]["auroc"] > 0.75 > 0.6 > summary["bad"]["auroc"]


def test_predictions_are_out_of_fold(data):
    X, Y = data
    memory = compare({"memory": Memory()}, X, Y, n_folds=5, n_resamples=10)
    np.testing.assert_array_equal(memory.auroc, 0.5)
    assert np.all(Memory().fit(X, np.nan_to_num(Y)).predict_proba(X) == np.nan_to_num(Y))  # in the sample it knows all


def test_linear_predictor_ranks(data):
    X, Y = data

    class Saturated(Counting):
        def decision_function(self, X):
            return 40.0 * super().predict_proba(X)

        def predict_proba(self, X):
            return np.ones((len(X), self.n_outcomes_))

    found = compare({"saturated": Saturated(0), "plain": Counting(0)}, X, Y, n_folds=5, n_resamples=10)
    np.testing.assert_allclose(found.auroc[0], found.auroc[1])


def test_resamples_are_shared(result):
    assert result.resampled_auroc.shape == (3, 3, 200)
    counts = scores.resample_counts(len(result.Y), 200, result.seed)
    for m, j in ((0, 2), (2, 1)):
        expected = scores.bootstrap_auroc(result.Y[:, j], result.score[m, :, j], result.folds, counts=counts)
        np.testing.assert_array_equal(result.resampled_auroc[m, j], expected)


def test_differences_are_paired(result):
    rows = result.differences("good")
    assert [row["outcome"] for row in rows] == ["a", "b", "c", "mean"] * 2
    mean = rows[3]
    assert mean["method"] == "bad"
    assert mean["difference"] == pytest.approx(np.mean(result.auroc[0] - result.auroc[1]))
    assert 0 < mean["low"] < mean["difference"] < mean["high"]
    assert mean["probability_above"] == 1.0
    only = result.differences("bad", outcomes=[0], mean_only=True)
    assert len(only) == 2
    assert only[0]["difference"] == pytest.approx(result.auroc[1, 0] - result.auroc[0, 0])
    with pytest.raises(ValueError, match="reference"):
        result.differences("missing")


def test_two_at_a_time_give_the_same_bytes(data):
    models = {"ml": BASELINES["ml_logit"](), "good": Counting(0)}
    one = compare(models, *data, n_folds=3, n_resamples=10)
    with parallel_config("threading"):  # processes would take longer to start than all the rest
        two = compare(models, *data, n_folds=3, n_resamples=10, n_jobs=2)
    assert one.probability.tobytes() == two.probability.tobytes()
    assert one.score.tobytes() == two.score.tobytes()


def test_checkpoint(data, tmp_path):
    X, Y = data
    log, folder = tmp_path / "log", tmp_path / "kept"

    def n_fits(features, outcomes, **settings):
        log.write_text("")
        model = Counting(0, str(log))
        found = compare({"a": model}, features, outcomes, n_folds=4, n_resamples=10, checkpoint=folder, **settings)
        return log.read_text().count("fit"), found

    first, fresh = n_fits(X, Y)
    again, kept = n_fits(X, Y)
    assert (first, again) == (4, 0)
    assert fresh.probability.tobytes() == kept.probability.tobytes()
    assert not list(folder.glob(".*"))
    sorted(folder.iterdir())[0].write_bytes(b"damaged")
    assert n_fits(X, Y)[0] == 1
    file = sorted(folder.iterdir())[0]
    for _, content in damaged(file.read_bytes()):  # sealed again: kept only if it can be used
        file.write_bytes(content)
        assert np.isfinite(n_fits(X, Y)[1].probability).all()
    file.unlink()
    assert n_fits(X, Y)[0] == 1
    assert n_fits(X + 1.0, Y)[0] == 4
    assert n_fits(X, 1.0 - Y)[0] == 4
    assert n_fits(X, Y, random_state=1)[0] == 4
    assert n_fits(X, Y)[0] == 0


def test_interrupted_comparison_is_taken_up(data, tmp_path):
    log = tmp_path / "log"

    class Interrupted(Counting):
        def fit(self, X, Y):
            if log.exists() and log.read_text().count("fit") == 2:
                raise KeyboardInterrupt
            return super().fit(X, Y)

    with pytest.raises(KeyboardInterrupt):
        compare({"a": Interrupted(0, str(log))}, *data, n_folds=4, checkpoint=tmp_path / "kept")
    Interrupted.fit = Counting.fit
    compare({"a": Interrupted(0, str(log))}, *data, n_folds=4, checkpoint=tmp_path / "kept", n_resamples=10)
    assert log.read_text().count("fit") == 4


def test_outcome_with_one_class_is_not_available(data):
    X, Y = data
    Y = np.column_stack([Y, np.zeros(len(Y))])
    found = compare({"good": Counting(0), "ml": BASELINES["ml_probit"]()}, X, Y, n_folds=3, n_resamples=20)
    assert np.isnan(found.auroc[:, 3]).all()
    assert np.isfinite(found.auroc[:, :3]).all()
    rows = found.table()
    assert np.isnan(rows[-1]["auroc_low"])
    assert np.isfinite(found.summary()[0]["auroc"])
    assert "| NA |" in rows.to_markdown()
    assert np.isnan(found.differences("ml")[3]["difference"])


def test_one_event(data):
    X, _ = data
    y = np.zeros((len(X), 1))
    y[np.argmax(X[:, 0])] = 1.0
    found = compare({"good": Counting(0), "ridge": BASELINES["ridge"]()}, X, y, n_folds=3, n_resamples=20)
    assert found.auroc[0, 0] == 1.0
    assert found.auroc[1, 0] == 0.5  # the one fold with the event was fitted without any


def test_models_of_scikit_learn(data):
    X, Y = data
    forest = RandomForestClassifier(10, min_samples_leaf=10, random_state=0)
    found = compare({"forest": forest}, X, np.nan_to_num(Y), n_folds=3, n_resamples=10)
    assert found.auroc.min() > 0.6
    assert not hasattr(forest, "estimators_")


def test_table_formats(tmp_path):
    table = Rows([{"name": "a|b", "value": 0.123456, "n": 3}, {"name": "c", "value": float("nan"), "n": 4}])
    assert table.to_csv(tmp_path / "t.csv") == "name,value,n\na|b,0.123456,3\nc,,4\n"
    assert (tmp_path / "t.csv").read_text() == table.to_csv()
    assert table.to_markdown(2).splitlines()[2] == "| a\\|b | 0.12 | 3 |"
    assert Rows().to_csv() == Rows().to_markdown() == ""
    pandas = pytest.importorskip("pandas")
    assert isinstance(table.to_dataframe(), pandas.DataFrame)
    assert list(table.to_dataframe().columns) == ["name", "value", "n"]


def test_calibration_table_of_a_method(result):
    assert result.calibration_table("ml").n.sum() == np.count_nonzero(~np.isnan(result.Y))
    assert result.calibration_table("ml", 1).n_events.sum() == result.n_events[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": {}}, "models"),
        ({"outcomes": ["a"]}, "outcomes"),
        ({"n_folds": 1}, "n_folds"),
        ({"Y": np.full((300, 2), 3.0)}, "Y must hold"),
        ({"X": np.full((300, 2), np.nan)}, "X must be finite"),
    ],
)
def test_bad_input(data, change, message):
    X, Y = data
    with pytest.raises(ValueError, match=message):
        compare(**({"models": {"a": Counting(0)}, "X": X, "Y": Y} | change))


def test_bad_predictions(data):
    class Wrong(Counting):
        def predict_proba(self, X):
            return self.value(X)

    for value, message in ((lambda X: np.ones((len(X), 7)), "shape"), (lambda X: np.full((len(X), 3), 2.0), "between")):
        Wrong.value = staticmethod(value)
        with pytest.raises(ValueError, match=message):
            compare({"wrong": Wrong(0)}, *data, n_folds=3)


def test_comparison_is_immutable(result):
    assert isinstance(result, Comparison)
    with pytest.raises(AttributeError):
        result.methods = ()
