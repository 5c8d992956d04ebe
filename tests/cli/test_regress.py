"""`coaltree regress`: what it writes, what it says, what it refuses."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import coaltree as ct
from coaltree import formats
from coaltree.cli import app
from coaltree.errors import TableError
from coaltree.regression.pairing import read_data
from coaltree.results.regression import MEANING, choose_baselines
from tests.seeds import seed

OUTCOMES = ("death", "stroke", "angina, unstable", "ulcer")
N_ROWS = 150


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    result.text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())
    return result


def write_csv(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(seed(51))
    X = rng.normal(size=(N_ROWS, 3))
    eta = X @ np.array([[1.2, 1.0, 0.9, -1.0], [0, 0.3, 0.2, 0.5], [0, 0, 0, 0]]) - 0.8
    Y = (eta + rng.normal(size=eta.shape) > 0).astype(int)
    ids = [f"p{i}" for i in range(N_ROWS)]
    x = write_csv(
        folder / "x.csv", ["id", "age", "weight", "noise"], ([i, *row] for i, row in zip(ids, X, strict=True))
    )
    rows = [[ids[i], *Y[i]] for i in rng.permutation(N_ROWS)]
    rows[0][1] = ""  # a label that is missing
    y = write_csv(folder / "y.csv", ["id", *OUTCOMES], [*rows, ["stranger", 0, 0, 0, 0]])
    return x, y, X, Y


SMALL = ("--folds", 3, "--iterations", 60, "--burn-in", 30, "--baselines", "ml_probit,ridge")


@pytest.fixture(scope="module")
def run(tables, tmp_path_factory):
    out = tmp_path_factory.mktemp("regress") / "result"
    x, y = tables[:2]
    result = invoke("regress", "--features", x, "--outcomes", y, "--id-column", "id", "--out", out, "--seed", 3, *SMALL)
    assert result.exit_code == 0, result.output
    return out, result


def test_counts_and_measurements(tmp_path):
    """Families by outcome, time at risk from a column: what they explain, and predictions in their own units."""
    rng = np.random.default_rng(seed(59))
    years, X = rng.uniform(0.3, 1.0, 120), pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    Y = pd.DataFrame(
        {
            "visits": rng.poisson(3 * years * np.exp(0.5 * X["a"])),
            "died": (rng.random(120) < 0.3).astype(int),
            "bmi": 25 + 2 * X["b"] + rng.normal(size=120),
            "years": years,
        }
    )
    paths = [tmp_path / "x.csv", tmp_path / "y.csv"]
    for table, path in zip((X, Y), paths, strict=True):
        table.to_csv(path, index=False)
    given = ("regress", "--features", paths[0], "--outcomes", paths[1], "--iterations", 60, "--burn-in", 30)
    refused = invoke(*given, "--drop", "years", "--out", tmp_path / "no")
    assert refused.exit_code == 2
    assert "outcome visits holds" in refused.text
    assert "--family 'poisson' for counts" in refused.text
    chosen = ("--family", "visits=poisson,bmi=normal", "--exposure", "years", "--chains", 1, "--folds", 3)
    result = invoke(*given, *chosen, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    rows = {(row["outcome"], row["method"]): row for row in read_csv(tmp_path / "out" / "deviance.csv")}
    assert {outcome for outcome, _ in rows} == {"visits", "died", "bmi"}
    assert float(rows["bmi", "coalescent"]["explained"]) > 0.6
    assert float(rows["visits", "coalescent"]["explained"]) > 0.1
    assert rows["died", "ridge"]["auroc"]
    assert not rows["bmi", "ridge"]["auroc"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "The deviance is twice the log likelihood" in page
    assert "residual standard deviation" in page
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["parameters"]["family"]["bmi"] == "normal"
    told = invoke("regress", "predict", tmp_path / "out" / "model.npz", paths[0], "--out", tmp_path / "new.csv")
    assert told.exit_code == 0, told.output
    found = pd.read_csv(tmp_path / "new.csv")
    assert np.corrcoef(found["bmi"], Y["bmi"])[0, 1] > 0.7
    assert 1.5 < found["visits"].mean() < 6.0  # a year's
    wrong = invoke(*given, "--exposure", "days", "--family", "poisson", "--out", tmp_path / "no")
    assert "--exposure must be a column of the outcomes" in wrong.text


def test_writes_its_files_and_nothing_else(run):
    out, result = run
    assert sorted(path.name for path in out.iterdir()) == sorted(MEANING)
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    assert all(name in result.output for name in MEANING)
    assert "1 of 600 labels are missing" in result.text
    assert "1 rows are in the outcomes only" in result.text


def test_summary(run):
    summary = json.loads((run[0] / "summary.json").read_text(encoding="utf-8"))
    assert summary["command"] == "coaltree regress"
    assert summary["version"] == ct.__version__
    assert summary["seed"] == 3
    assert summary["parameters"]["folds"] == 3
    assert summary["parameters"]["baselines"] == ["ml_probit", "ridge"]
    assert summary["n_rows"] == N_ROWS
    assert set(summary["events"]) == set(OUTCOMES)
    assert [row["method"] for row in summary["mean_scores"]] == ["coalescent", "ml_probit", "ridge"]
    assert all(row["auroc"] > 0.65 for row in summary["mean_scores"])
    assert "--seed 3" in summary["command_line"]
    assert summary["command_line"].startswith("coaltree regress --features")


def test_tables_agree_with_each_other(run, tables):
    out, _, _, Y = run[0], run[1], tables[2], tables[3]
    areas = read_csv(out / "auc.csv")
    assert len(areas) == len(OUTCOMES) * 3
    predictions = read_csv(out / "predictions.csv")
    assert [row["id"] for row in predictions] == [f"p{i}" for i in range(N_ROWS)]  # the order of the features
    folds = np.array([int(row["fold"]) for row in predictions])
    assert set(folds) == {1, 2, 3}
    from coaltree.regression import scores

    j = OUTCOMES.index("angina, unstable")
    p = np.array([float(row[OUTCOMES[j]]) for row in predictions])
    told = next(row for row in areas if row["outcome"] == OUTCOMES[j] and row["method"] == "coalescent")
    assert float(told["auroc"]) == pytest.approx(scores.auroc(Y[:, j], p, folds), abs=2e-3)
    coefficients = read_csv(out / "coefficients.csv")
    assert len(coefficients) == len(OUTCOMES) * 4
    age = {row["outcome"]: float(row["mean"]) for row in coefficients if row["feature"] == "age"}
    assert age["death"] > 0.4 > -0.4 > age["ulcer"]
    assert all(float(row["low_90"]) <= float(row["mean"]) <= float(row["high_90"]) for row in coefficients)
    nodes = read_csv(out / "nodes.csv")
    assert len(nodes) == len(OUTCOMES) - 1
    assert set(nodes[-1]["outcomes"].split("; ")) == set(OUTCOMES)


def test_trees(run):
    out = run[0]
    tree, support = formats.newick_with_support((out / "tree.nwk").read_text(encoding="utf-8"))
    assert set(tree.names) == set(OUTCOMES)
    assert ((support >= 0) & (support <= 1)).all()
    trees = formats.from_nexus((out / "posterior.nex").read_text(encoding="utf-8"))
    assert len(trees) == 2 * 30


def test_report(run):
    page = (run[0] / "report.html").read_text(encoding="utf-8")
    for words in ("The outcomes", "How well it predicts", "Coefficients", "Composite outcomes", "How certain is this"):
        assert words in page
    assert all(name in page for name in OUTCOMES)
    assert page.count("<img ") >= 5
    assert "coaltree regress --features" in page
    assert "http://" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)


def test_existing_folder_is_kept_unless_told(run, tables):
    out = run[0]
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    x, y = tables[:2]
    result = invoke("regress", "--features", x, "--outcomes", y, "--id-column", "id", "--out", out, *SMALL)
    assert result.exit_code == 2
    assert "--overwrite" in result.text
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_one_outcome_without_comparison(tables, tmp_path):
    x, y = tables[:2]
    out = tmp_path / "out"
    arguments = ("--folds", 0, "--iterations", 20, "--burn-in", 10, "--chains", 1)
    drop = ("--drop", "stroke,ulcer,noise", "--drop", '"angina, unstable"')
    result = invoke("regress", "--features", x, "--outcomes", y, "--id-column", "id", "--out", out, *arguments, *drop)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == [
        "coefficients.csv",
        "model.npz",
        "report.html",
        "summary.json",
    ]
    assert {row["feature"] for row in read_csv(out / "coefficients.csv")} == {"(intercept)", "age", "weight"}
    assert "How well it predicts" not in (out / "report.html").read_text(encoding="utf-8")


def test_python_writes_what_the_command_writes(tables, tmp_path, capfd):
    x, y = tables[:2]
    arguments = ("--folds", 0, "--iterations", 20, "--burn-in", 10, "--chains", 1, "--seed", 2)
    result = invoke(
        "regress", "--features", x, "--outcomes", y, "--id-column", "id", "--out", tmp_path / "a", *arguments
    )
    assert result.exit_code == 0, result.output
    capfd.readouterr()
    found = ct.results.regress(
        pd.read_csv(x, float_precision="round_trip"),
        pd.read_csv(y),
        tmp_path / "b",
        id_column="id",
        n_folds=0,
        n_iter=20,
        burn_in=10,
        n_chains=1,
        random_state=2,
    )
    assert capfd.readouterr() == ("", "")
    assert found.data.outcomes == OUTCOMES
    assert found.summary["tables"][0] == {"file": "a table in memory (DataFrame)", "sha256": None}
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {path.name for path in (tmp_path / "b").iterdir()}
    for name in names - {"report.html", "summary.json", "model.npz"}:  # these say where tables were, and `verbose`
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_interrupted_comparison_leaves_the_fit(tables, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("coaltree.results.regression._compare", interrupt)
    x, y = tables[:2]
    out = tmp_path / "out"
    result = invoke("regress", "--features", x, "--outcomes", y, "--id-column", "id", "--out", out, *SMALL)
    assert result.exit_code == 0, result.output
    assert "interrupted" in result.text
    assert "coefficients.csv" in {path.name for path in out.iterdir()}
    assert "auc.csv" not in {path.name for path in out.iterdir()}
    assert "interrupted" in (out / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Tables as people have them: words, levels, gaps; and a model that was kept."""
    folder = tmp_path_factory.mktemp("mixed")
    rng = np.random.default_rng(seed(52))
    n = 80
    age, sex, site = rng.normal(50, 10, n), rng.choice(["m", "f"], n), rng.choice([*"abc"], n)
    eta = (age - 50) / 10 + (sex == "m")
    rows = [[f"p{i}", "" if i % 9 == 0 else f"{age[i]:.2f}", sex[i], site[i]] for i in range(n)]
    words = np.where(eta + rng.normal(size=n) > 0, "yes", "no")
    labels = [[f"p{i}", words[i], int(eta[i] > 1), 0] for i in range(n)]
    x = write_csv(folder / "x.csv", ["id", "age", "sex", "site"], rows)
    y = write_csv(folder / "y.csv", ["id", "died", "ill", "never"], labels)
    out = folder / "out"
    options = ("--folds", 0, "--iterations", 40, "--burn-in", 20, "--chains", 1, "--checkpoint", folder / "kept")
    result = invoke("regress", "--features", x, "--outcomes", y, "--id-column", "id", "--out", out, *options)
    assert result.exit_code == 0, result.output
    return folder, out, rows, result


def test_words_levels_and_gaps(mixed):
    folder, out, _, result = mixed
    assert "one class only are left out, of the tree too: 'never'" in result.text
    assert "Missing values of 'age' are filled in" in result.text
    verdict = json.loads((out / "summary.json").read_text(encoding="utf-8"))["verdict"]
    assert verdict.startswith("Not converged: ")
    assert verdict in result.text
    names = {row["feature"] for row in read_csv(out / "coefficients.csv")}
    assert {"age", "age (missing)", "sex = m"} < names
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Predict new rows" in page
    assert page.count(verdict) == 2  # first, and with the numbers
    assert '<div class="note good"' not in page
    assert len(list((folder / "kept").glob("final-*.npz"))) == 1


def test_a_kept_model_predicts_new_rows(mixed, tmp_path):
    _, out, rows, _ = mixed
    new = write_csv(tmp_path / "new.csv", ["site", "id", "sex", "age"], [[r[3], r[0], r[2], r[1]] for r in rows[:7]])
    done = invoke("regress", "predict", out / "model.npz", new, "--id-column", "id", "--out", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    told = read_csv(tmp_path / "p.csv")
    assert [row["id"] for row in told] == [f"p{i}" for i in range(7)]
    import pandas as pd

    model = ct.CoalescentProbit.load(out / "model.npz")
    table = pd.DataFrame(rows[:7], columns=["id", "age", "sex", "site"]).replace("", None)
    expected = model.predict_proba(table)
    np.testing.assert_allclose([[float(row["died"]), float(row["ill"])] for row in told], expected, atol=1e-6)
    assert all(0 < float(row["died sd"]) < 0.6 for row in told)


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (["age", "sex"], [50, "m"], "X lacks the columns 'site'"),
        (["age", "sex", "site"], [50, "m", "z"], "'site' holds 'z', which the model has not seen"),
        (["age", "sex", "site"], ["old", "m", "a"], "'age' held numbers"),
    ],
)
def test_new_rows_that_do_not_fit(mixed, tmp_path, header, row, message):
    new = write_csv(tmp_path / "new.csv", header, [row, row])
    result = invoke("regress", "predict", mixed[1] / "model.npz", new, "--out", tmp_path / "p.csv")
    assert result.exit_code == 2
    assert message in result.text
    assert not (tmp_path / "p.csv").exists()


def test_a_model_that_is_cut_off(mixed, tmp_path):
    _, out, _, _ = mixed
    cut = tmp_path / "model.npz"
    cut.write_bytes((out / "model.npz").read_bytes()[:-200])
    result = invoke("regress", "predict", cut, tmp_path / "new.csv")
    assert result.exit_code == 2
    assert "damaged or was not written by coaltree" in result.text
    result = invoke("regress", "predict", tmp_path / "none.npz", tmp_path / "new.csv")
    assert result.exit_code == 2
    assert "is not there" in result.text


def test_what_is_needed_is_named(tables):
    result = invoke("regress", "--features", tables[0])
    assert result.exit_code == 2
    assert "--outcomes" in result.text


def test_a_folder_by_default_and_quietly(tables, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    x, y = tables[:2]
    short = ("--iterations", 8, "--burn-in", 4, "--folds", 0, "--chains", 1)
    result = invoke("regress", "--features", x, "--outcomes", y, "--id-column", "id", "--quiet", *short)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Not known to have converged")
    assert (tmp_path / f"{y.stem}-coaltree" / "report.html").exists()


# ---- matching rows


def test_rows_are_matched_by_id(tables):
    x, y, X, Y = tables
    data = read_data(x, y, "id")
    np.testing.assert_allclose(data.X, X)
    known = ~np.isnan(data.Y)
    np.testing.assert_array_equal(data.Y[known], Y[known])
    assert data.outcomes == OUTCOMES


def test_rows_in_order(tmp_path):
    x = write_csv(tmp_path / "x.csv", ["a", "b"], [[1, 5], [2, 5], [3, 5]])
    y = write_csv(tmp_path / "y.csv", ["o"], [[0], [1], ["NA"]])
    data = read_data(x, y)
    np.testing.assert_array_equal(data.X[:, 0], [1, 2, 3])
    np.testing.assert_array_equal(data.Y[:, 0], [0, 1, np.nan])
    assert any("'b'" in remark for remark in data.notes)  # a constant feature


def refuse(tmp_path, message, x, y, **options):
    files = [write_csv(tmp_path / name, table[0], table[1:]) for name, table in (("x.csv", x), ("y.csv", y))]
    with pytest.raises(TableError, match=message):
        read_data(*files, **options)
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    words = [word if isinstance(word, str) else ",".join(word) for word in words]
    result = invoke("regress", "--features", files[0], "--outcomes", files[1], "--out", tmp_path / "out", *words)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "y.csv"]


GOOD_X, GOOD_Y = [["id", "a"], ["p", 1], ["q", 2], ["r", 4]], [["id", "o"], ["p", 0], ["q", 1], ["r", 0]]


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (GOOD_X, GOOD_Y[:3], {"drop": ("id",)}, "3 rows and the outcomes 2"),
        (GOOD_X, GOOD_Y, {}, "X column 'id' holds text of 3 levels in 3 rows"),
        (GOOD_X, GOOD_Y, {"id_column": "name"}, "is not a column"),
        (GOOD_X, [["id", "o"], ["x", 0], ["y", 1]], {"id_column": "id"}, "No 'id' is in both"),
        (GOOD_X, [["id", "o"], ["p", 0], ["p", 1]], {"id_column": "id"}, "have the same name 'p'"),
        (GOOD_X, [["id", "o"], ["p", 0], ["q", 2], ["r", 0]], {"id_column": "id"}, "outcome o holds 2"),
        (GOOD_X, [["id", "o"], ["p", 1], ["q", 1], ["r", 1]], {"id_column": "id"}, "No outcome has both"),
        ([["id", "a"], ["p", ""], ["q", ""], ["r", ""]], GOOD_Y, {"id_column": "id"}, "'a' holds no value at all"),
        ([["id", "a"], ["p", 1], ["q", "inf"], ["r", 4]], GOOD_Y, {"id_column": "id"}, "'a' holds infinite values"),
        (GOOD_X, [["id", "o"], ["p", "maybe"], ["q", "no"], ["r", 1]], {"id_column": "id"}, "o holds 'maybe'"),
        (GOOD_X, GOOD_Y, {"id_column": "id", "drop": ("b",)}, "'b', in neither"),
        (GOOD_X, GOOD_Y, {"id_column": "id", "drop": ("o",)}, "No column is left"),
        ([["", "a"], ["p", 1], ["q", 2]], [["", "o"], ["p", 0], ["z", 1]], {}, "Row 2 is called 'q' in the features"),
    ],
)
def test_bad_tables(tmp_path, x, y, options, message):
    refuse(tmp_path, message, x, y, **options)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--folds", "1"),
        ("--folds", "1000"),
        ("--burn-in", "5000"),
        ("--baselines", "bagging"),
        ("--jobs", "0"),
        ("--seed", "-1"),
        ("--iterations", "many"),
    ],
)
def test_bad_options(tables, tmp_path, arguments):
    x, y = tables[:2]
    out = tmp_path / "out"
    result = invoke("regress", "--features", x, "--outcomes", y, "--id-column", "id", "--out", out, *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.text
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())


def test_missing_file(tables, tmp_path):
    result = invoke("regress", "--features", tmp_path / "no.csv", "--outcomes", tables[1], "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "not there" in result.text


def test_baseline_names():
    assert choose_baselines("none") == ()
    assert choose_baselines("ridge, lasso,ridge") == ("ridge", "lasso")
    assert "random_forest" in choose_baselines("all")
