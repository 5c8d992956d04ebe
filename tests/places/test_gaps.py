"""What fills gaps of mixed tables: a row given the others, and cells given coordinates, against brute force."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.model.kinds import (
    BinaryLevels,
    Categorical,
    Circular,
    ColumnKind,
    Continuous,
    Count,
    Ordinal,
    Rounded,
    Skewed,
)
from coaltree.places.gaps import _given_others
from tests.seeds import seed


def test_a_row_given_the_others():
    """Against the conditional of a joint normal, whose root is all but flat."""
    rng = np.random.default_rng(seed(1))
    tree = ct.sample_tree(6, random_state=rng)
    noise = 0.1 + rng.random(6)
    Z = ct.sample_data(tree, 2, leaf_noise=noise, random_state=rng)
    centre, spread = _given_others(tree, Z, noise)
    joint = 1e6 - tree.cophenetic() + np.diag(noise)
    for i in range(6):
        rest = np.delete(np.arange(6), i)
        weight = np.linalg.solve(joint[np.ix_(rest, rest)], joint[rest, i])
        np.testing.assert_allclose(centre[i], weight @ Z[rest], atol=1e-4)
        assert spread[i] == pytest.approx(joint[i, i] - weight @ joint[rest, i], abs=1e-4)


KNOTS = ((0.0, -2.0), (1.0, 0.0), (10.0, 2.0))


@pytest.mark.parametrize(
    ("model", "cuts"),
    [
        (BinaryLevels("b", ("no", "yes")), [0.0]),
        (Ordinal("o", ("low", "mid", "high")), [0.0, 0.8]),
        (Categorical("c", ("r", "g", "b", "y")), []),
        (Continuous("x", centre=3.0, scale=2.0), []),
        (Rounded("r", step=0.5, centre=3.0, scale=2.0), []),
        (Count("n", centre=1.0, scale=0.7), []),
        (Skewed("s", knots=KNOTS, centre=0.1, scale=0.9), []),
        (Circular("h", period=24.0), []),
    ],
    ids=lambda value: value.kind if isinstance(value, ColumnKind) else "",
)
def test_cells_that_are_expected(model, cuts):
    rng = np.random.default_rng(seed(2))
    centre, deviation, cuts = rng.normal(size=(3, model.width)), np.array([0.3, 0.8, 1.2]), np.array(cuts)
    found = model.expect(centre, deviation, cuts)
    for row in range(3):
        z = centre[row] + deviation[row] * rng.normal(size=(40_000, model.width))
        cells = model.summary(model.decode(z, cuts))
        error = cells.std(axis=0) / 200.0
        # Quantiles leave out the ends of heavy tails: a hundredth of the spread.
        assert np.all(np.abs(cells.mean(axis=0) - found[row]) < 4.0 * error + 0.02 * cells.std(axis=0) + 1e-4)
        # Negative control: what would be expected at the next row's place.
        assert np.abs(found[row] - found[row - 1]).max() > 10.0 * error.max()
