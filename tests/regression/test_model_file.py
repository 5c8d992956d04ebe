"""A model in a file: the same to the last bit, and nothing but a model."""

import numpy as np
import pandas as pd
import pytest

from coaltree import CoalescentProbit, storage
from coaltree.regression import forest
from coaltree.regression.model_file import KIND
from tests.seeds import seed

QUICK = {"n_iter": 30, "burn_in": 15, "n_chains": 1, "random_state": 0}


def data(n=90):
    rng = np.random.default_rng(seed(90))
    X = pd.DataFrame({"age": rng.normal(50, 10, n), "sex": rng.choice(["m", "f"], n), "site": rng.choice([*"abc"], n)})
    X.loc[::9, "age"] = np.nan
    eta = (X["age"].fillna(50) - 50) / 10 + (X["sex"] == "m")
    Y = pd.DataFrame({"died": np.where(eta + rng.normal(size=n) > 0, "yes", "no"), "ill": eta + rng.normal(size=n) > 1})
    return X, Y


@pytest.fixture(params=["plain", "frame", "auto", "binary", "wide"])
def pair(request, tmp_path, monkeypatch):
    monkeypatch.setattr(forest, "N_TREES", 20)
    monkeypatch.setattr(forest, "N_TUNING", 10)
    monkeypatch.setattr("coaltree.regression.stacking.N_FOLDS", 3)
    monkeypatch.setattr("coaltree.estimators.regression.FOLD_ITERATIONS", 30)
    monkeypatch.setattr("coaltree.estimators.regression.FOLD_BURN_IN", 15)
    X, Y = data()
    options = QUICK | ({"features": "auto"} if request.param == "auto" else {})
    if request.param in ("plain", "binary", "wide"):
        X = np.random.default_rng(seed(91)).standard_normal((90, 14 if request.param == "wide" else 3))
        Y = (X[:, :3] > 0.1).astype(int) if request.param != "binary" else np.where(X[:, 0] > 0, "b", "a")
    model = CoalescentProbit(**options).fit(X, Y)
    model.save(tmp_path / "model.npz")
    return X, model, CoalescentProbit.load(tmp_path / "model.npz"), tmp_path / "model.npz"


def test_a_model_comes_back_as_it_was(pair):
    X, model, again, _ = pair
    assert model.predict_proba(X).tobytes() == again.predict_proba(X).tobytes()
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert model.get_params() == again.get_params()
    np.testing.assert_array_equal(model.coef_, again.coef_)
    np.testing.assert_array_equal(model.covariance_, again.covariance_)
    assert list(model.classes_) == list(again.classes_)
    assert model.outcome_names_ == again.outcome_names_
    assert model.convergence_ == again.convergence_
    if model.tree_ is not None:
        node = len(model.node_coef_) - 1
        assert model.predict_node(X, node).tobytes() == again.predict_node(X, node).tobytes()
        assert model.tree_.to_newick() == again.tree_.to_newick()


def test_new_rows_are_refused_by_name(tmp_path):
    X, Y = data()
    CoalescentProbit(**QUICK).fit(X, Y).save(tmp_path / "model.npz")
    model = CoalescentProbit.load(tmp_path / "model.npz")
    with pytest.raises(ValueError, match="X lacks the columns 'sex'"):
        model.predict_proba(X.drop(columns="sex"))
    with pytest.raises(ValueError, match="'site' holds 'z', which the model has not seen"):
        model.predict_proba(X.assign(site="z"))
    with pytest.raises(ValueError, match="named columns"):
        model.predict_proba(np.ones((3, 3)))


def test_damaged_files_are_refused(tmp_path):
    X, Y = data()
    file = tmp_path / "model.npz"
    CoalescentProbit(**QUICK).fit(X, Y).save(file)
    whole = file.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"model\.npz"):
            CoalescentProbit.load(file)
    file.write_bytes(whole)
    chance, n_refused = CoalescentProbit.load(file).predict_proba(X), 0
    for place in np.linspace(100, len(whole) - 100, 20).astype(int):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            again = CoalescentProbit.load(file)
        except ValueError:
            n_refused += 1
        else:  # a byte that means nothing, such as a date inside the archive
            assert again.predict_proba(X).tobytes() == chance.tobytes()
    assert n_refused > 10


def test_files_that_hold_something_else_are_refused(tmp_path):
    file = tmp_path / "model.npz"
    storage.write(file, {"linear/coef_draws": np.zeros((1, 2, 3, 4))}, {"linear": {}, "settings": {}}, KIND)
    with pytest.raises(ValueError, match="does not hold a valid regression"):
        CoalescentProbit.load(file)
    storage.write(file, {}, {}, "coaltree.Other")
    with pytest.raises(ValueError, match=r"holds 'coaltree\.Other'"):
        CoalescentProbit.load(file)
    with pytest.raises(FileNotFoundError):
        CoalescentProbit.load(tmp_path / "none.npz")
