"""Public labelled tables of numbers: scikit-learn's, and ARFF files and Gagolewski's suite in a folder."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

LOADERS = {
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
}
# Files `NAME.arff`, and the class where it is not the last attribute. Those with few numeric columns are left out, as
# are second copies of a table.
ARFF = """
arrhythmia autos balance.scale breast.w column3C dermatology diabetes ecoli glass haberman heart.statlog ionosphere
letter page.blocks pendigits segment sonar spambase spectrometer vehicle vowel waveform5000 zoo
"""
CLASS = {"spectrometer": "LRS-class"}
SUITE = ("aggregation", "hepta", "lsun", "r15", "yeast")  # files `NAME.data.gz` and `NAME.labels0.gz`
NAMES = tuple(sorted((*LOADERS, *ARFF.split(), *SUITE)))
# Every other name is for choosing rules, the rest only for judging them.
DEVELOPMENT, HELD_OUT = NAMES[::2], NAMES[1::2]


def load(name, folder=None):
    """Table (n, d) and classes (n,), rows with unknown values left out; None if the file is not in the folder."""
    if name in LOADERS:
        return LOADERS[name](return_X_y=True)
    files = {path.name: path for path in sorted(Path(folder).rglob("*"))} if folder else {}
    if f"{name}.arff" in files:
        return read_arff(files[f"{name}.arff"], CLASS.get(name))
    if f"{name}.data.gz" in files:
        with gzip.open(files[f"{name}.labels0.gz"], "rt") as labels, gzip.open(files[f"{name}.data.gz"], "rt") as data:
            return np.loadtxt(data, ndmin=2), np.loadtxt(labels).astype(int)
    return None


def read_arff(path, target=None):
    """Numeric columns of an ARFF file and its class; nominal columns count if all their values are numbers."""
    names, rows = [], None
    for line in path.read_text("utf-8", errors="replace").splitlines():
        text = line.strip()
        if rows is not None and text and not text.startswith("%"):
            rows.append([value.strip() for value in next(csv.reader([text], quotechar="'", skipinitialspace=True))])
        elif text.lower().startswith("@attribute"):
            names.append(
                next(csv.reader([text.replace("\t", " ")], delimiter=" ", quotechar="'", skipinitialspace=True))[1]
            )
        elif text.lower().startswith("@data"):
            rows = []
    columns = list(zip(*rows, strict=True))
    chosen = len(names) - 1 if target is None else names.index(target)
    classes = np.array(columns.pop(chosen))
    if target == "LRS-class":
        classes = np.array([value[:-1] or "0" for value in classes])  # its tens are the class, the units a subclass
    numeric = [column for column in map(_numbers, columns) if column is not None and np.isnan(column).mean() < 0.1]
    X = np.column_stack(numeric)
    complete = ~np.isnan(X).any(axis=1) & (classes != "?")
    return X[complete], np.unique(classes[complete], return_inverse=True)[1]


def _numbers(column):
    words = {"?": np.nan, "true": 1.0, "false": 0.0}
    try:
        return np.array([words[value] if value in words else float(value) for value in column])
    except ValueError:
        return None


def subsample(X, y, n_rows, seed, standardise=True):
    """Columns, standardised, of about n_rows rows, classes in proportion, each with two rows or more."""
    rng = np.random.default_rng(seed)
    share = min(1.0, n_rows / len(y))
    rows = []
    for value, count in zip(*np.unique(y, return_counts=True), strict=True):
        if count >= 2:
            rows.append(rng.permutation(np.flatnonzero(y == value))[: max(2, round(share * count))])
    rows = rng.permutation(np.concatenate(rows))
    X = X[rows]
    X = X[:, X.std(axis=0) > 1e-12]
    return StandardScaler().fit_transform(X) if standardise else X, np.unique(y[rows], return_inverse=True)[1]
