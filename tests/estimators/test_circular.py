"""A table with hours and angles, as users of the estimator and of the command meet it."""

import numpy as np
import pytest
from scipy.special import logsumexp

import coaltree as ct
from coaltree.errors import InputError
from coaltree.frame import as_frame
from coaltree.model.guess import guess_columns

pandas = pytest.importorskip("pandas")

N = 24
COLUMNS = {"hour": "circular", "wind": "circular:360", "size": "continuous"}
QUICK = {"n_draws": 30, "warmup": 30, "random_state": 0, "columns": COLUMNS}


def make_table(seed=0, n=N):
    """Two groups: one about midnight, with wind from the north, and one about noon."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % 2
    return pandas.DataFrame(
        {
            "hour": np.mod(np.rint(12.0 * group + 1.5 * rng.normal(size=n)), 24.0),
            "wind": np.mod(180.0 * group + 25.0 * rng.normal(size=n), 360.0),
            "size": 3.0 * group + rng.normal(size=n),
        }
    ), group


@pytest.fixture(scope="module")
def table():
    shown, _ = make_table()
    shown.loc[4, "hour"] = np.nan
    shown.loc[7, "wind"] = np.nan
    return shown


@pytest.fixture(scope="module")
def model(table):
    return ct.CoalescentClustering(**QUICK, n_clusters=2).fit(table)


def test_groups_around_midnight_are_found(model):
    _, group = make_table()
    agreement = np.mean(model.labels_ == group)
    assert max(agreement, 1.0 - agreement) > 0.9
    notes = " ".join(model.column_notes_)
    assert "Taken as circular, with period 24: 'hour'." in notes
    assert "Taken as circular, with period 360: 'wind'." in notes
    assert [each.grid for each in model.columns_.models] == [1.0, 0.0, 0.0]


def off(a, b, period):
    return np.abs(np.mod(a - b + 0.5 * period, period) - 0.5 * period)


def test_gaps_are_filled_by_directions(model, table):
    filled = model.impute()
    known = table.notna().to_numpy()
    np.testing.assert_allclose(filled.to_numpy()[known], table.to_numpy()[known])
    assert filled["hour"][4] in range(24)
    assert off(filled["hour"][4], 0.0, 24.0) < 4.0  # the mean of hours as numbers is noon
    assert off(filled["wind"][7], 180.0, 360.0) < 60.0
    new = pandas.DataFrame({"hour": [np.nan, 23.0], "wind": [5.0, np.nan], "size": [0.0, 0.0]})
    filled = model.impute(new)
    assert off(filled["hour"][0], 0.0, 24.0) < 4.0
    assert off(filled["wind"][1], 0.0, 360.0) < 60.0


def test_density_is_one_over_the_circle(model):
    row = pandas.DataFrame({"hour": [np.nan], "wind": [np.nan], "size": [0.5]})
    whole = model.score_samples(row)[0]
    hours = pandas.concat([row.assign(hour=float(k)) for k in range(24)])
    assert logsumexp(model.score_samples(hours)) == pytest.approx(whole, abs=2e-4)
    points = 48  # of a smooth periodic function: the trapezoid rule
    winds = pandas.concat([row.assign(wind=360.0 * k / points) for k in range(points)])
    assert logsumexp(model.score_samples(winds)) + np.log(360.0 / points) == pytest.approx(whole, abs=2e-3)
    # One hour of the group is likelier than one between.
    at_noon, at_six = model.score_samples(hours.iloc[[12, 6]])
    assert at_noon > at_six + 0.5


def test_a_file_and_left_out_rows(model, table, tmp_path):
    model.save(tmp_path / "model.npz")
    loaded = ct.CoalescentClustering.load(tmp_path / "model.npz")
    assert loaded.columns_ is not model.columns_
    assert loaded.columns_.models == model.columns_.models
    pandas.testing.assert_frame_equal(loaded.impute(), model.impute())
    new, _ = make_table(seed=3)
    np.testing.assert_array_equal(loaded.score_samples(new.iloc[:2]), model.score_samples(new.iloc[:2]))
    left_out = model.leave_one_out()
    assert np.isfinite(left_out.log_density).all()


def test_words_of_the_page(table, tmp_path):
    ct.results.cluster(table, tmp_path / "out", n_draws=8, warmup=10, n_jobs=1, columns=COLUMNS, n_clusters=2)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Taken as circular, with period 24" in page
    splits = pandas.read_csv(tmp_path / "out" / "splits.csv")
    said = splits.loc[splits["column"] == "hour", "left_against_right"]
    assert said.str.contains("about").any()


def test_what_is_refused(table):
    with pytest.raises(InputError, match=r"covariance must be .*circular columns.*'hour', 'wind'"):
        ct.CoalescentClustering(covariance="wishart", **QUICK).fit(table)
    with pytest.raises(InputError, match="'size' is circular, but what is its period"):
        guess_columns(as_frame(table), {"size": "circular"})
    with pytest.raises(InputError, match=r"columns\['hour'\] must be one of .*'circular'"):
        guess_columns(as_frame(table), {"hour": "count:24"})
