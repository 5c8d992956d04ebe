"""Files that hold unfinished chains.

A file remembers a digest of data and settings, so that a run is never continued with others. The pilot's expansion of
the likelihood is computed anew, by the same operations: a run that was stopped and continued equals one that was not,
to the last bit.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree.errors import InputError
from coaltree.inference.learn import Unknowns
from coaltree.posterior import storage
from coaltree.regression.chain import Chain, Moving
from coaltree.regression.coefficients import Point
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.prior import Hyper, Prior
from coaltree.tree import Tree

KIND = "coaltree.ProbitRun"

Arrays = dict[str, npt.NDArray[Any]]


def fingerprint(likelihood: Likelihood, prior: Prior, settings: Any, n_chains: int, seed: Any) -> str:
    """SHA-256 of everything that decides what the chains draw."""
    digest = hashlib.sha256()
    for array in likelihood.digest():
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((likelihood.link, prior, tuple(settings), n_chains, seed)).encode())
    return digest.hexdigest()


def write(path: str | os.PathLike[str], chains: list[Chain], key: str) -> None:
    """Write all chains to `path`, whole or not at all."""
    arrays: Arrays = {}
    headers = []
    for number, chain in enumerate(chains):
        parts, header = _pack(chain)
        arrays |= {f"{number}.{name}": part for name, part in parts.items()}
        headers.append(header)
    storage.write(path, arrays, {"key": key, "chains": headers}, KIND)


def read(path: str | os.PathLike[str], chains: list[Chain], key: str) -> None:
    """Bring fresh `chains` to where the file left them; ValueError if it is damaged or of another run."""
    parts = storage.read(path, KIND)
    if parts["key"] != key:
        raise InputError(
            f"checkpoint {os.fspath(path)} belongs to other data, settings or random_state, or to an earlier version, "
            "which drew otherwise. Delete it, or pass another path."
        )
    for number, chain in enumerate(chains):
        own = {part.partition(".")[2]: array for part, array in parts.items() if part.startswith(f"{number}.")}
        _unpack(chain, own, parts["chains"][number])


def _pack(chain: Chain) -> tuple[Arrays, dict[str, Any]]:
    now = chain.moving
    arrays: Arrays = {f"draws.{name}": np.array(values) for name, values in chain.draws.items()}
    arrays |= {f"trace.{name}": np.array(values) for name, values in chain.trace.items()}
    arrays["precision_sum"] = chain.precision_sum
    header: dict[str, Any] = {"generator": chain.rng.bit_generator.state, "begun": now is not None}
    if now is None:
        return arrays, header
    # A gradient may have been put together from parts, and the same sum in another order has other last bits.
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


def _unpack(chain: Chain, arrays: Arrays, header: dict[str, Any]) -> None:
    chain.rng.bit_generator.state = header["generator"]
    if not header["begun"]:
        return
    chain.draws = {name: list(arrays[f"draws.{name}"]) for name in chain.draws}
    chain.trace = {name: arrays[f"trace.{name}"].tolist() for name in chain.trace}
    chain.precision_sum = arrays["precision_sum"]
    likelihood, unknowns = chain.likelihood, None
    if "children" in arrays:
        values = {part.partition(".")[2]: array for part, array in arrays.items() if part.startswith("covariance.")}
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
