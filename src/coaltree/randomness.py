"""Random numbers: `random_state` → Generator, and one independent compiled stream per particle.

A stream is a xoshiro256++ state (Blackman & Vigna 2019), four 64-bit words in a row of an array, so that kernels
advance it in place without sharing anything between threads. The states are drawn from the parent generator:
the result depends on the seed alone, never on the number of threads.
"""

from __future__ import annotations

import math
import numbers

import numpy as np

from coaltree._arrays import Words
from coaltree._compile import inline
from coaltree.errors import InputError, InputTypeError

Stream = Words
RandomState = None | int | np.random.Generator | np.random.RandomState | np.random.SeedSequence


def as_generator(random_state: RandomState = None) -> np.random.Generator:
    """Return a Generator for None, an int, a SeedSequence, a Generator or a legacy RandomState."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.Generator(np.random.PCG64(random_state.randint(0, 2**31, size=8)))
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        if int(random_state) < 0:
            raise InputError(f"random_state must be a non-negative integer, got {random_state}.")
        return np.random.default_rng(int(random_state))
    if random_state is None or isinstance(random_state, np.random.SeedSequence):
        return np.random.default_rng(random_state)
    raise InputTypeError(
        "random_state must be None, an int, a numpy Generator, RandomState or SeedSequence, "
        f"got {type(random_state).__name__}."
    )


def seed_of(random_state: RandomState) -> int | None:
    """Return an int seed as it is and None for all else: what a file may remember of how it was made."""
    return int(random_state) if isinstance(random_state, numbers.Integral) else None


def make_streams(rng: np.random.Generator, n_streams: int) -> Stream:
    """Draw `n_streams` independent stream states, shape (n_streams, 4)."""
    return rng.integers(1, 2**64, size=(n_streams, 4), dtype=np.uint64, endpoint=False)


@inline
def _rotate_left(word: np.uint64, count: int) -> np.uint64:
    return (word << np.uint64(count)) | (word >> np.uint64(64 - count))


@inline
def uniform(stream: Stream) -> float:
    """Advance `stream` (4,) and return a uniform draw in the open interval (0, 1)."""
    word = _rotate_left(stream[0] + stream[3], 23) + stream[0]
    shifted = stream[1] << np.uint64(17)
    stream[2] ^= stream[0]
    stream[3] ^= stream[1]
    stream[1] ^= stream[2]
    stream[0] ^= stream[3]
    stream[2] ^= shifted
    stream[3] = _rotate_left(stream[3], 45)
    # 52 bits, shifted by half a step: neither 0 nor 1 can occur, so logs are finite.
    return (float(word >> np.uint64(12)) + 0.5) * 2.0**-52


@inline
def exponential(stream: Stream) -> float:
    """Advance `stream` and return an Exponential(1) draw."""
    return -math.log(uniform(stream))
