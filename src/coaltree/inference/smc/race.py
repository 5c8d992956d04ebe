r"""The race (smc1, Görür & Teh 2008): every pair draws its merge time once, and the earliest merges.

A pair draws at rate 1 from its birth. With N_C(t) the local evidence at rate 1 from time t on, the pair that merges
contributes N_C(birth) to the weight, and each pair that is dropped because a member merged at t contributes
N_C(birth)/N_C(t).

No pair is drawn before it matters. Every cluster has a random key, a pair's uniform is a hash of its two keys, and its
merge time is the quantile at that uniform: determined, but not computed until needed. A list holds the pairs that are
due before a horizon; when they are used up the horizon moves on. Bounds on the distribution function rule out nearly
all pairs by their distance and uniform alone, and the rest are computed exactly: nothing is neglected.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints, Words
from coaltree._compile import inline, kernel
from coaltree.inference.smc.candidate_pairs import Shortlist, enlist_one, smallest, start_list, strike_out
from coaltree.inference.smc.particles import Particles, distances, merge, place
from coaltree.inference.smc.proposals import Retained, follows, retained_slots
from coaltree.model import gig
from coaltree.model.gig import quadrature, tables
from coaltree.model.gig.tables import GigTable
from coaltree.randomness import Stream, uniform

# With no more clusters than this the list simply holds all pairs.
FEW = 16
# Room in the list, per leaf.
ROOM = 8
# Uniforms below this are examined one by one; the smallest possible is 2^−53.
RARE = 0.01
LOG_NEVER = -53.0 * math.log(2.0)
# A survival of 1 − 1e-13 counts as 1.
LOG_CERTAIN = math.log(1e-13)
# Below this a distribution function is taken from its tail.
LOG_TAIL = math.log(1e-3)


class Race(NamedTuple):
    """What particles know about the times at which their pairs are due."""

    key: Words  # (M, n) random word of the cluster in each slot
    fate: Ints  # (M, n) merge at which the cluster ends on a retained path, −1 if it is not on one
    until: Floats  # (M, n) time of that merge, −1 if there is none
    fresh: Floats  # (M, n) squared distance of the newest cluster to each slot, ∞ to itself
    step: Floats  # (M,) how far the horizon, the limit of the list, moved last
    first: Ints  # (M,) number of clusters when it did
    listed: Shortlist  # the pairs due up to the horizon, by time


def start_race(n_particles: int, n: int, rng: np.random.Generator) -> Race:
    """A race that has not started."""
    room = ROOM * max(n, 2 * FEW)
    return Race(
        key=rng.integers(0, 2**64, size=(n_particles, n), dtype=np.uint64),
        fate=np.full((n_particles, n), -1),
        until=np.full((n_particles, n), -1.0),
        fresh=np.empty((n_particles, n)),
        step=np.zeros(n_particles),
        first=np.zeros(n_particles, dtype=np.int64),
        listed=start_list(n_particles, room),
    )


def copy_race(race: Race, target: Ints, source: Ints) -> None:
    """Overwrite what the particles in `target` know, except their lists, with what those in `source` know."""
    for array in (race.key, race.fate, race.until, race.fresh, race.step, race.first):
        array[target] = array[source]


@inline
def new_key(stream: Stream) -> np.uint64:
    """A random word: 52 bits, spread over 64."""
    return np.uint64(uniform(stream) * 2.0**52) * np.uint64(0x9E3779B97F4A7C15)


@inline
def uniform_of(key: np.uint64, other: np.uint64) -> float:
    """The uniform of a pair: the sum of its keys through the finaliser of SplitMix64 (Steele et al. 2014)."""
    word = key + other
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return (float(word >> np.uint64(12)) + 0.5) * 2.0**-52


@inline
def look_at_row(state: Particles, race: Race, d: float, m: int, i: int, stop: int, eps: Floats, highest: float) -> None:
    """List the pairs of slot i with slots below `stop`, at squared distances `eps`, that are due before the horizon."""
    offset, born = state.offset[m], state.born[m]
    key, fate, until = race.key[m], race.fate[m], race.until[m]
    horizon = race.listed.limit[m]
    near = far = math.inf
    if horizon < math.inf:
        # However small its uniform, a pair beyond `far` is not due; most are not due beyond `near`.
        v = 2.0 * horizon + offset[i] + highest
        far = gig.farthest_due(d, 1.0, v, LOG_NEVER)
        near = gig.farthest_due(d, 1.0, v, math.log(RARE))
    for j in range(stop):
        e = eps[j]
        if e == math.inf:
            continue
        if fate[i] >= 0 and fate[i] == fate[j]:
            enlist_one(race.listed, m, until[i], i, j)  # the retained path says that the two merge, and when
            continue
        if e > far:
            continue
        w = uniform_of(key[i], key[j])
        if e > near and w > RARE:
            continue
        total = offset[i] + offset[j]
        birth = max(born[i], born[j])
        after = max(birth, min(until[i], until[j]))
        if horizon < math.inf:
            v = 2.0 * horizon + total
            if horizon < after or gig.log_cdf_bound(d, e, 1.0, v) < math.log(w):
                continue
        time = after + gig.time_at(d, e, 1.0, 2.0 * after + total, w)
        enlist_one(race.listed, m, time, i, j)


@inline
def typical_wait(eps: Floats, d: float, live: int) -> float:
    """Half the mode of v at the mean distance of the closest partner: about when many pairs are due."""
    total = 0.0
    for i in range(1, live):
        total += eps[i * (i - 1) // 2 : i * (i + 1) // 2].min()
    return 0.5 * gig.mode_in_log(1.0 - 0.5 * d, total / (live - 1), 1.0)[1]


@inline
def move_horizon(state: Particles, race: Race, d: float, m: int, live: int, now: float, eps: Floats) -> None:
    """Find the pairs that are due next, as many as a quarter of the clusters or so."""
    limit = race.listed.limit
    if live <= FEW:
        limit[m] = math.inf
    elif limit[m] == -math.inf:
        race.step[m] = max(typical_wait(eps, d, live), 1e-300)
        limit[m] = now + race.step[m]
    else:
        merged = race.first[m] - live
        race.step[m] *= min(max(0.25 * race.first[m] / merged, 0.5), 2.0) if merged > 0 else 2.0
        limit[m] = max(limit[m], now) + race.step[m]
    race.first[m] = live
    race.listed.n_listed[m] = 0
    highest = state.offset[m, :live].max()
    for i in range(1, live):
        look_at_row(state, race, d, m, i, i, eps[i * (i - 1) // 2 : i * (i + 1) // 2], highest)


@inline
def log_survival(d: float, eps: float, r_born: float, r_now: float, table: GigTable) -> float:
    """−log of the share of v > r_born that is also > r_now: what a pair that did not merge in between adds."""
    bound = gig.log_cdf_bound(d, eps, 1.0, r_now)
    if bound < LOG_CERTAIN:
        return 0.0
    if bound < LOG_TAIL:
        # Far out in the tail its own mass suffices, to the digits that matter.
        mode, _, a, b, x_now = gig.peak(d, eps, 1.0, r_now)
        log_mass = tables.tabled_log_mass(table, eps, a, b)
        gone = math.exp(-log_mass) * quadrature.lower_tail(x_now, a, b, bound - LOG_CERTAIN)
        early = 0.0
        if r_born > 0.0:
            bound = gig.log_cdf_bound(d, eps, 1.0, r_born)
            if bound > LOG_CERTAIN:
                early = math.exp(-log_mass) * quadrature.lower_tail(math.log(r_born / mode), a, b, bound - LOG_CERTAIN)
        return math.log1p(-early) - math.log1p(-gone)
    survived = gig.log_local(d, eps, 1.0, r_born) - gig.log_local(d, eps, 1.0, r_now)
    return survived - 0.5 * (r_born - r_now)


@inline
def log_dropped(
    state: Particles, d: float, m: int, eps: Floats, live: int, i: int, j: int, time: float, table: GigTable
) -> float:
    """Sum of log N(birth)/N(time) over the pairs of slot i with all others except j."""
    offset, born = state.offset[m, :live], state.born[m]
    far = gig.farthest_due(d, 1.0, 2.0 * time + offset[i] + offset.max(), LOG_CERTAIN)
    total = 0.0
    pair = i * (i - 1) // 2
    for q in range(live):
        if q == i:
            pair = i * (i + 1) // 2 + i  # from here on (q, i) is in row q
            continue
        e = eps[pair]
        pair += 1 if q < i else q
        if q != j:
            birth = max(born[i], born[q])
            total += birth - time
            if e < far:
                own = offset[i] + offset[q]
                total += log_survival(d, e, 2.0 * birth + own, 2.0 * time + own, table)
    return total


@kernel
def advance_race(
    state: Particles,
    state_race: Race,
    d: float,
    stage: int,
    first: int,
    stop: int,
    retained: Retained,
    table: GigTable,
    out: Floats,
) -> None:
    """Merge once in each of the particles first … stop−1 by the race; `out` gets log incremental weights."""
    race = state_race
    live = state.node.shape[1] - stage
    for m in range(first, stop):
        eps, offset, born = distances(state.leaves, state.eps, m, stage), state.offset[m], state.born[m]
        now = state.times[m, stage - 1] if stage > 0 else 0.0
        newest = state.newest[m]
        if newest >= 0:
            # Only now, so that copies of one particle diverge from here on.
            race.key[m, newest] = new_key(state.streams[m])
        if follows(m, retained):
            # Its pairs are known to outlive the first merge of their members. Others may copy this path, so it keeps a
            # list like theirs, in which its own next merge comes first.
            for slot in range(live):
                race.fate[m, slot] = retained.merge[state.node[m, slot]]
                race.until[m, slot] = retained.times[race.fate[m, slot]]
        if newest >= 0 and race.listed.n_listed[m] > 0:
            look_at_row(state, race, d, m, newest, live, race.fresh[m], offset[:live].max())
        k = smallest(race.listed, m)
        while k < 0:
            move_horizon(state, race, d, m, live, now, eps)
            k = smallest(race.listed, m)
        i, j, time = race.listed.higher[m, k], race.listed.lower[m, k], race.listed.value[m, k]
        if follows(m, retained):
            i, j = retained_slots(state, stage, retained)
            time = retained.times[stage]

        birth = max(born[i], born[j])
        out[m] = gig.log_local(d, eps[place(i, j)], 1.0, 2.0 * birth + offset[i] + offset[j])
        for member, other in ((i, j), (j, i)):
            out[m] += log_dropped(state, d, m, eps, live, member, other, time, table)
        merge(state, d, m, stage, i, j, time - now, race.fresh[m])
        last = live - 1
        strike_out(race.listed, m, i, j, last)
        race.key[m, i] = race.key[m, last]
        race.fate[m, i], race.until[m, i] = race.fate[m, last], race.until[m, last]
        race.fate[m, j], race.until[m, j] = -1, -1.0
