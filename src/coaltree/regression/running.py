"""Run the regression's chains from their seeds, or continue them from a checkpoint, a file of unfinished chains.

The file stores a digest of data and settings, so that a run is never continued with others. The pilot's expansion of
the likelihood is recomputed by the same operations: a run that was stopped and continued is bit-for-bit equal to one
that was not.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree import storage
from coaltree.errors import InputError
from coaltree.inference.learning import running
from coaltree.inference.learning.chain import Unknowns
from coaltree.regression.chain import MOST_STEPS, Chain, Moving, Settings, WideChain
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.moves.coefficients import Point
from coaltree.regression.prior import Hyper, Prior
from coaltree.tree import Tree
from coaltree.validation import check_count, check_part

KIND = "coaltree.ProbitRun"

Arrays = dict[str, npt.NDArray[Any]]


def run_chains(
    likelihood: Likelihood,
    prior: Prior,
    settings: Settings,
    n_iter: int,
    generators: list[np.random.Generator],
    n_jobs: int | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> list[Chain]:
    """Run one chain per generator, `n_iter` iterations each; the result does not depend on `n_jobs` or where they run.

    Ctrl-C ends the run early with the iterations done so far, provided every chain has a draw to keep.
    """
    kind = WideChain if prior.wide else Chain
    chains: list[Chain] = [kind(likelihood, prior, settings, rng) for rng in generators]
    save = None
    if checkpoint is not None:
        seeds = [rng.bit_generator.state for rng in generators]
        key = fingerprint(likelihood, prior, settings, len(chains), seeds)
        save = functools.partial(write_checkpoint, checkpoint, chains, key)
        if Path(checkpoint).exists():
            read_checkpoint(checkpoint, chains, key)
    if not running.run(chains, n_iter, n_jobs, progress, save) and not all(chain.draws["theta"] for chain in chains):
        raise KeyboardInterrupt
    return chains


def fingerprint(likelihood: Likelihood, prior: Prior, settings: Any, n_chains: int, seed: Any) -> str:
    """Identify a run by everything that determines what the chains draw."""
    families = [part.family.name for part in likelihood.observed]
    return storage.fingerprint(*likelihood.digest(), families, prior, tuple(settings), n_chains, seed)


def write_checkpoint(path: str | os.PathLike[str], chains: list[Chain], key: str) -> None:
    """Write all chains to `path`, atomically."""
    storage.write_chains(path, map(_pack, chains), key, KIND)


def read_checkpoint(path: str | os.PathLike[str], chains: list[Chain], key: str) -> None:
    """Bring fresh `chains` to the state in the file; ValueError if it is damaged or from another run."""
    storage.read_chains(path, key, KIND, chains, _unpack)


def _pack(chain: Chain) -> tuple[Arrays, dict[str, Any]]:
    now = chain.moving
    arrays: Arrays = {f"draws.{name}": np.array(values) for name, values in chain.draws.items()}
    arrays |= {f"trace.{name}": np.array(values) for name, values in chain.trace.items()}
    arrays["precision_sum"] = chain.precision_sum
    header: dict[str, Any] = {"generator": chain.rng.bit_generator.state, "begun": now is not None}
    if now is None:
        return arrays, header
    # A gradient may have been assembled from parts, and the same sum in another order differs in its last bits.
    arrays |= {name: getattr(now.point, name) for name in Point._fields}
    arrays["theta_sum"], arrays["pilot"] = now.theta_sum, now.pilot.theta
    arrays["numbers"] = np.array([now.hyper.spread, now.accepted])
    if now.hyper.widths is not None:
        arrays["widths"], header["df"] = now.hyper.widths, now.hyper.df
    header |= {"n_done": now.n_done, "n_steps": now.n_steps, "n_summed": now.n_summed}
    if now.hyper.unknowns is not None:
        unknowns = now.hyper.unknowns
        arrays["children"], arrays["times"] = unknowns.tree.children, unknowns.tree.times
        arrays["leaf_noise"] = unknowns.leaf_noise
        arrays |= {f"covariance.{name}": np.asarray(value) for name, value in unknowns.covariance.values.items()}
    return arrays, header


def _check(chain: Chain, arrays: Arrays, header: dict[str, Any]) -> None:
    """Raise ValueError unless the parts are those of this chain after `n_done` iterations."""
    n_outcomes, n_features, wide = chain.likelihood.n_outcomes, chain.likelihood.n_features, chain.prior.wide
    n_done, several = check_count(header["n_done"], "n_done", at_least=1), n_outcomes > 1
    check_count(header["n_summed"], "n_summed", at_least=0)
    if check_count(header["n_steps"], "n_steps", at_least=1) > MOST_STEPS:
        raise InputError(f"n_steps must be at most {MOST_STEPS}, got {header['n_steps']}.")
    theta, numbers = (n_outcomes, n_features + 1), (n_features,)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("theta", "gradient", "theta_sum", "pilot"), theta)
    shapes |= {"values": (n_outcomes,), "numbers": (2,), "precision_sum": chain.precision_sum.shape}
    shapes |= {"leaf_noise": (n_outcomes,), "times": (n_outcomes - 1,)} if several else {}
    shapes |= {"widths": numbers} if wide else {}
    n_draws = max(n_done - chain.settings.burn_in, 0) // chain.settings.thin
    if n_draws:
        shapes |= {
            "draws.theta": (n_draws, *theta),
            "draws.spread": (n_draws, *(numbers if wide and not several else ())),
        }
    if n_draws and several:
        check_part(arrays["draws.children"], "draws.children", (n_draws, n_outcomes - 1, 2), "i")
        shapes |= {"draws.times": (n_draws, n_outcomes - 1), "draws.leaf_noise": (n_draws,)}
    for name, shape in shapes.items():
        check_part(arrays[name], name, shape)
    for name in chain.trace:
        check_part(arrays[f"trace.{name}"], f"trace.{name}", (n_done,), finite=several)
    positive = [arrays["numbers"][:1], *(arrays[name] for name in ("widths", "leaf_noise") if name in shapes)]
    if not all((part > 0.0).all() for part in positive) or (wide and not header["df"] > 0.0):
        raise InputError("spread, widths, leaf_noise and df must be positive.")
    if several and n_draws:
        for children, times in zip(arrays["draws.children"], arrays["draws.times"], strict=True):
            Tree(children, times)


def _unpack(chain: Chain, arrays: Arrays, header: dict[str, Any]) -> None:
    chain.rng.bit_generator.state = header["generator"]
    if header["begun"] is False:
        return
    _check(chain, arrays, header)
    chain.draws = {name: list(arrays[f"draws.{name}"]) for name in chain.draws}
    chain.trace = {name: arrays[f"trace.{name}"].tolist() for name in chain.trace}
    chain.precision_sum = arrays["precision_sum"]
    likelihood, unknowns = chain.likelihood, None
    if likelihood.n_outcomes > 1:
        values = storage.below(arrays, "covariance.")
        unknowns = Unknowns(
            Tree(arrays["children"], arrays["times"]),
            chain.prior.family.from_values(values, likelihood.n_features),
            arrays["leaf_noise"],
        )
    spread, accepted = arrays["numbers"].tolist()
    chain.moving = Moving(
        Point(*(arrays[name] for name in Point._fields)),
        Hyper(unknowns, spread, arrays.get("widths"), header.get("df", np.inf)),
        n_done=header["n_done"],
        pilot=chain.make_pilot(arrays["pilot"]),
        n_steps=header["n_steps"],
        accepted=accepted,
        theta_sum=arrays["theta_sum"],
        n_summed=header["n_summed"],
    )
