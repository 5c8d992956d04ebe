"""Whether chains have converged is said once, in the same words: warning, terminal, page, summary.json, saved model."""

import json
import warnings
from html import escape

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

import coaltree as ct
from coaltree.cli import app
from coaltree.posterior.convergence import MIXED
from tests.seeds import seed


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "1000"})
    assert result.exit_code == 0, result.output
    return result.output


def warned(fit):
    """Return a fitted model and the convergence warnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit()
    return model, [str(each.message) for each in caught if each.category is ConvergenceWarning]


def check_folder(folder, terminal, convergence):
    """Terminal, page and summary give the verdict of a model, and no other."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert summary["converged"] == convergence.converged
    assert summary["verdict"] == convergence.verdict
    assert terminal.count(convergence.verdict) == 1
    assert escape(convergence.verdict) in page
    assert ("chains agree" in page) == ("chains agree" in terminal) == convergence.converged
    assert ("Not converged" in page) == ("Not converged" in terminal) == (not convergence.converged)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("outcomes"), np.random.default_rng(seed(71))
    X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["age", "weight"])
    Y = pd.DataFrame((X.to_numpy() @ [[1, 0.8, -1], [0, 0.4, 0.3]] + rng.normal(size=(200, 3)) > 0).astype(int))
    Y.columns = ["death", "stroke", "ulcer"]
    X.to_csv(folder / "x.csv", index=False)
    Y.to_csv(folder / "y.csv", index=False)
    return folder, X, Y


LONG = (pytest.mark.slow, pytest.mark.ci)


@pytest.mark.parametrize(("n_iter", "converged"), [pytest.param(900, True, marks=LONG), (60, False)])
def test_of_a_regression(outcomes, tmp_path, n_iter, converged):
    folder, X, Y = outcomes
    model, told = warned(lambda: ct.CoalescentProbit(n_iter=n_iter, burn_in=30, random_state=0).fit(X, Y))
    assert model.convergence_.converged == converged
    assert told == ([] if converged else [model.convergence_.verdict])
    options = ("--folds", 0, "--iterations", n_iter, "--burn-in", 30, "--seed", 0, "--out", tmp_path / "out")
    text = run("regress", "--features", folder / "x.csv", "--outcomes", folder / "y.csv", *options)
    kept = ct.CoalescentProbit.load(tmp_path / "out" / "model.npz")
    assert kept.convergence_ == model.convergence_
    check_folder(tmp_path / "out", text, model.convergence_)


@pytest.mark.parametrize(("n_draws", "converged"), [pytest.param(300, True, marks=LONG), (20, False)])
def test_of_a_clustering(tmp_path, n_draws, converged):
    X = pd.DataFrame(ct.sample_data(ct.sample_tree(12, random_state=1), 3, random_state=2), columns=list("abc"))
    X.to_csv(tmp_path / "x.csv", index=False)
    options = ("--draws", n_draws, "--warmup", 100, "--seed", 0)
    text = run("cluster", tmp_path / "x.csv", "--out", tmp_path / "out", *options)
    settings = {"columns": "auto", "n_draws": n_draws, "warmup": 100, "random_state": 0}
    model, told = warned(lambda: ct.CoalescentClustering(**settings).fit(X))
    assert model.convergence_.converged == converged
    assert told == list(model.convergence_.warnings)
    check_folder(tmp_path / "out", text, model.convergence_)
    model.save(tmp_path / "model.npz")
    assert ct.CoalescentClustering.load(tmp_path / "model.npz").convergence_ == model.convergence_


def test_a_table_with_categories_knows_that_it_is_one():
    rng = np.random.default_rng(seed(72))
    frame = pd.DataFrame({"a": rng.normal(size=20), "b": rng.choice(["x", "y", "z"], size=20)})
    learned = ct.learn_posterior(frame, columns="auto", n_draws=8, warmup=5)
    assert learned.convergence.about == MIXED
