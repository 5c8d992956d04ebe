"""The heap of best-first searches, against sorting."""

import numpy as np

from coaltree._compile import kernel
from coaltree.inference import heap


@kernel
def push_and_pop(score, n_first, out):
    """Push `n_first` numbers, then take one out for each of the others that comes in, then the rest."""
    room, size, done = np.empty(score.size, np.int64), 0, 0
    for item in range(score.size):
        size = heap.push(room, score, size, item)
        if item >= n_first:
            out[done] = heap.pop(room, score, size)
            size -= 1
            done += 1
    while size > 0:
        out[done] = heap.pop(room, score, size)
        size -= 1
        done += 1


def test_the_best_comes_first():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 10, 257):
        score, out = np.round(rng.normal(size=n), 1), np.empty(n, dtype=np.int64)
        push_and_pop(score, n, out)
        assert sorted(out) == list(range(n))
        np.testing.assert_array_equal(score[out], np.sort(score)[::-1])


def test_pushes_and_pops_in_turn():
    score, out = np.array([3.0, 1.0, 2.0, 5.0, 0.0, 4.0]), np.empty(6, dtype=np.int64)
    push_and_pop(score, 3, out)
    assert out.tolist() == [3, 0, 5, 2, 1, 4]
