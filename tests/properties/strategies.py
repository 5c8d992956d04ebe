"""Arguments as users make them, and the one rule of every public function: a valid result, or our own error."""

import atexit
import faulthandler
import inspect
import os
import re
import sys
import warnings
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import coaltree as ct

SOURCE = str(Path(ct.__file__).parent)
COUNT = [0]
# Warnings that are advice, documented with the functions that give them.
ADVICE = ("covariance=.wishart. learns a full", r"\d+ outcome\(s\) have a single class", "Not known to have converged")
LONGEST = 300  # seconds for one call, compilation included; beyond it the process ends and says where it was


class Refused(Exception):
    """Stands for an error of ours: the type and the message."""


def outcome(function, *arguments, also=(), **options):
    """Call a public function: its result, or `Refused` if it raised a documented error of ours.

    Anything else escapes and fails the test: another type, an error from inside numpy, a message that names no
    argument, a warning. `also` lists further words of which a message may speak.
    """
    COUNT[0] += 1
    faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for message in ADVICE:
                warnings.filterwarnings("ignore", message)
            return function(*arguments, **options)
    except (ValueError, TypeError) as error:
        frame = error.__traceback__
        while frame.tb_next is not None:
            frame = frame.tb_next
        where = frame.tb_frame.f_code.co_filename
        if f"{os.sep}sklearn{os.sep}" in where:  # estimators leave the checks of tables to scikit-learn
            return Refused(f"{type(error).__name__}: {error}")
        if not where.startswith(SOURCE):
            raise
        words = [*inspect.signature(function).parameters, *also]
        if not any(re.search(rf"\b{re.escape(word)}\b", str(error)) for word in words):
            raise AssertionError(f"The message names no argument of {words}: {error}") from error
        return Refused(f"{type(error).__name__}: {error}")
    finally:
        faulthandler.cancel_dump_traceback_later()


@atexit.register
def _tell():
    """How many calls were made, for those who ask."""
    if os.environ.get("COALTREE_EXAMPLES"):
        print(f"public calls made: {COUNT[0]}", file=sys.__stderr__)


# ---- numbers

EXTREMES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-300,
    1e300,
    -1e300,
    5e-324,
    1e-160,
    1e160,
    1e17,
    float("nan"),
    float("inf"),
    -float("inf"),
)
scalars = st.one_of(
    st.sampled_from(EXTREMES),
    st.floats(),
    st.integers(-3, 40),
    st.sampled_from([None, True, "1", "", [], np.float32(1.5), np.int8(2), 1j, 10**30, object()]),
)
counts = st.one_of(
    st.integers(-2, 12), st.sampled_from([None, 1.0, 2.5, True, "3", np.int64(4), np.uint8(3), float("nan"), [2]])
)  # fmt: skip
seeds = st.one_of(
    st.integers(0, 2**40), st.sampled_from([0, None, -1, 1.5, "0", True, np.random.SeedSequence(3), np.int64(5)])
)

SCALES = (1.0, 1.0, 1.0, 1.0, 1e-3, 1e4, 1e-8, 1e8, 1e-100, 1e100, 1e-150, 1e150, 1e-160, 1e160, 1e-300, 1e300)
DTYPES = (
    "float64",
    "float64",
    "float64",
    "float32",
    "float16",
    "int64",
    "int8",
    "uint16",
    "bool",
    "object",
    ">f8",
    "longdouble",
)


@st.composite
def arrays(draw, shape, wild=True):
    """Values on any scale, with ties, duplicated rows and constant columns, of many types and layouts."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    values = np.asarray(rng.standard_normal(shape)) * draw(st.sampled_from(SCALES if wild else (1.0,)))
    if draw(st.integers(0, 4)) == 0:
        values = np.asarray(np.round(values))
    if values.size and draw(st.integers(0, 4)) == 0:
        values += draw(st.sampled_from((1e3, 1e9, -1e16)))
    if values.ndim and len(values) > 1 and draw(st.integers(0, 4)) == 0:
        values[rng.integers(len(values))] = values[0]
    if values.size and values.ndim == 2 and draw(st.integers(0, 6)) == 0:
        values[:, 0] = values[0, 0]
    if wild and values.size and draw(st.integers(0, 7)) == 0:
        values.flat[rng.integers(values.size)] = draw(st.sampled_from(EXTREMES))
    return laid_out(draw, values, draw(st.sampled_from(DTYPES if wild else ("float64", "float32"))))


def laid_out(draw, values, dtype="float64"):
    """The same values in another type and memory layout, or as lists."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = np.asarray(values).astype(dtype)
    choice = draw(st.integers(0, 7))
    if choice == 0:
        return np.asfortranarray(values)
    if choice == 1 and values.ndim:
        return np.repeat(values, 2, axis=0)[::2]
    if choice == 2 and values.ndim:
        return values[::-1].copy()[::-1]
    if choice == 3:
        values.setflags(write=False)
    if choice == 4:
        return values.tolist()
    return values


FEW, FEWER, LEAVES = st.integers(0, 7), st.integers(0, 4), st.integers(2, 9)


@st.composite
def tables(draw, rows=FEW, columns=FEWER, wild=True):
    """A table (n, d), now and then of another shape."""
    n, d = draw(rows), draw(columns)
    shape = (n, d) if draw(st.integers(0, 12)) else draw(st.sampled_from([(), (n,), (n, d, 2), (d, n)]))
    return draw(arrays(shape, wild))


@st.composite
def covariances(draw, d):
    """None, or a matrix that is often, not always, a covariance of dimension d, or variances."""
    kind = draw(st.integers(0, 7))
    if kind <= 1:
        return None
    if kind == 2:
        return draw(tables(wild=True))
    if kind == 3:
        return draw(scalars)
    if kind == 7:
        return draw(arrays((d,)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    half = rng.standard_normal((d, d + (kind > 4)))
    with np.errstate(all="ignore"):
        matrix = half @ half.T * draw(st.sampled_from(SCALES))
    return laid_out(draw, matrix, draw(st.sampled_from(("float64", "float64", "float32", "object"))))


def leaf_noises(n):
    positive = st.floats(1e-3, 10.0)
    return st.one_of(
        st.just(0.0), positive, positive, st.lists(positive, min_size=n, max_size=n), scalars, arrays((n,))
    )


# ---- trees


@st.composite
def trees(draw, leaves=LEAVES, named=False):
    """A valid tree: random merges, times with ties and on any scale, sometimes names that need quoting."""
    n = draw(leaves)
    tree = ct.sample_tree(n, random_state=draw(st.integers(0, 10**6)))
    times = tree.times * draw(st.sampled_from((1.0, 1.0, 1.0, 1e-12, 1e12, 1e-300, 1e300, 0.0)))
    if draw(st.booleans()):
        times = np.maximum.accumulate(np.round(times, 1))
    names = None
    if named or draw(st.booleans()):
        names = draw(st.lists(texts, min_size=n, max_size=n, unique=True))
    return ct.Tree(tree.children, times, names)


NASTY = (
    "",
    " ",
    "a b",
    "it's",
    "''",
    "(x)",
    "a:b;",
    "[&W 1]",
    "_",
    "a_b",
    "0",
    "-1",
    "é",
    "\u200f",
    '<b>&"</b>',
    "\t",
    "\n",
    "🌳",
)
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=5))


def is_finite(*values):
    """Say whether all numbers are: no NaN and no infinity ever comes out."""
    return all(np.isfinite(np.asarray(value, dtype=np.float64)).all() for value in values)
