"""One rule of scale: tables are standardised by Python as by the command, and numbers of one unit keep it."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

import coaltree as ct
from coaltree import results
from coaltree.frame import as_frame
from coaltree.model.guess import guess_columns

QUICK = {"n_draws": 6, "warmup": 10, "random_state": 0}
GROUP = np.arange(24) % 3
X = np.random.default_rng(0).normal(size=(24, 3)) + 5.0 * np.eye(3)[GROUP] @ np.random.default_rng(1).normal(
    size=(3, 3)
)
UNEQUAL = X * [1.0, 1024.0, 1.0 / 128.0]  # powers of two, which make no rounding errors


def table(values, names="abc"):
    return pd.DataFrame(values, columns=list(names))


def test_a_table_in_python_is_what_the_command_makes_of_its_file(tmp_path):
    frame = table(UNEQUAL).assign(grade=np.where(GROUP == 0, "low", "high"))
    for each in (table(UNEQUAL), frame):
        each.to_csv(tmp_path / "t.csv", index=False)
        model = ct.CoalescentClustering(**QUICK).fit(each)
        for other in (ct.cluster(tmp_path / "t.csv", **QUICK), ct.cluster(each, **QUICK)):
            np.testing.assert_array_equal(model.posterior_.times, other.posterior_.times)
        written = results.cluster(tmp_path / "t.csv", tmp_path / "out", **QUICK, overwrite=True, n_jobs=1)
        np.testing.assert_array_equal(model.posterior_.times, written.model.posterior_.times)
        assert written.summary["parameters"]["standardised"] is True


def test_units_do_not_matter_in_a_table_and_are_told_of():
    model = ct.CoalescentClustering(**QUICK).fit(table(UNEQUAL))
    same = ct.CoalescentClustering(**QUICK).fit(table(X))
    np.testing.assert_array_equal(model.posterior_.times, same.posterior_.times)
    assert "standardised to mean 0 and standard deviation 1, which ranged from 0.0" in model.column_notes_[-1]
    assert "which ranged" not in same.column_notes_[-1]
    own = ct.CoalescentClustering(**QUICK, scale="none").fit(table(UNEQUAL))
    assert any("own units; standard deviations range from" in note for note in own.column_notes_)
    assert np.abs(own.posterior_.times / model.posterior_.times - 1.0).max() > 0.1


def test_an_array_keeps_its_units_and_a_warning_says_so():
    with pytest.warns(UserWarning, match=r"the widest decide the tree\. Pass scale='standard'"):
        plain = ct.CoalescentClustering(**QUICK).fit(UNEQUAL)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Columns of X differ in scale")
        kept = ct.CoalescentClustering(**QUICK, scale="none").fit(UNEQUAL)
        scaled = ct.CoalescentClustering(**QUICK, scale="standard").fit(UNEQUAL)
        ct.CoalescentClustering(**QUICK).fit(X)
        ct.CoalescentClustering(**QUICK, covariance="diagonal").fit(UNEQUAL)
    np.testing.assert_array_equal(plain.posterior_.times, kept.posterior_.times)
    alike = ct.CoalescentClustering(**QUICK).fit(table(UNEQUAL))
    np.testing.assert_array_equal(scaled.posterior_.times, alike.posterior_.times)


def test_principal_components_keep_their_size():
    components = PCA().fit_transform(UNEQUAL)
    names = ["PC1", "PC2", "PC3"]
    with warnings.catch_warnings():  # of unequal scales, which components have
        warnings.filterwarnings("error", "Columns of X differ in scale")
        plain = ct.CoalescentClustering(**QUICK).fit(components)
    named = ct.CoalescentClustering(**QUICK).fit(pd.DataFrame(components, columns=names))
    np.testing.assert_allclose(named.posterior_.times, plain.posterior_.times, rtol=1e-6)
    scaled = ct.CoalescentClustering(**QUICK, scale="standard").fit(pd.DataFrame(components, columns=names))
    assert np.abs(scaled.posterior_.times / plain.posterior_.times - 1.0).max() > 0.1


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["PC1", "PC2"], True),
        (["pca0", "pca1"], True),
        (["X_umap_1", "X_umap_2"], True),
        (["Factor 1", "Factor 2"], True),
        (["PC1", "age"], False),
        (["PC1", "umap2"], False),
        (["a", "b"], False),
    ],
)
def test_names_of_components(names, kept):
    assert guess_columns(as_frame(pd.DataFrame(X[:, :2], columns=names))).standardised is not kept


def test_components_of_a_file_are_not_standardised(tmp_path):
    anndata = pytest.importorskip("anndata")
    data = anndata.AnnData(UNEQUAL)
    data.obsm["X_pca"] = PCA().fit_transform(UNEQUAL)
    data.write_h5ad(tmp_path / "cells.h5ad")
    plain = ct.CoalescentClustering(**QUICK).fit(data.obsm["X_pca"])
    for model in (ct.cluster(tmp_path / "cells.h5ad", **QUICK), ct.cluster(data, **QUICK)):
        np.testing.assert_allclose(model.posterior_.times, plain.posterior_.times, rtol=1e-6)
        assert any("in their own units" in note for note in model.column_notes_)
    del data.obsm["X_pca"]
    assert any("standardised" in note for note in ct.cluster(data, **QUICK).column_notes_)  # measurements


def test_a_given_covariance_is_in_the_units_of_the_table():
    phi = np.diag([1.0, 1e6, 1e-4])
    model = ct.CoalescentClustering(covariance=phi, **QUICK).fit(table(UNEQUAL))
    np.testing.assert_array_equal(model.covariance_, phi)


def test_the_first_argument_is_the_number_of_clusters():
    assert ct.CoalescentClustering(3, **QUICK).fit(X).n_clusters_ == 3


def test_whole_numbers_are_names():
    frame = table(X).set_index(np.arange(24) * 5)
    for model in (
        ct.CoalescentClustering(**QUICK).fit(frame),
        ct.CoalescentClustering(**QUICK, metric="cosine").fit(frame),
    ):
        assert model.tree_.names[:3] == ("0", "5", "10")
    assert as_frame(frame.set_index(np.zeros(24, dtype=int))).ids is None
    assert as_frame(frame.set_index(np.arange(24) > 3)).ids is None
