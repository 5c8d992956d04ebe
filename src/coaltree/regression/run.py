"""Run chains of the regression from their seeds, or on from a checkpoint."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np

from coaltree.inference import running
from coaltree.regression import checkpoint as files
from coaltree.regression.chain import Chain, Settings
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.prior import Prior
from coaltree.regression.wide import WideChain


def run(
    likelihood: Likelihood,
    prior: Prior,
    settings: Settings,
    n_iter: int,
    generators: list[np.random.Generator],
    n_jobs: int | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> list[Chain]:
    """Run one chain a generator, `n_iter` iterations each; the result does not depend on `n_jobs` or on where.

    Ctrl-C ends the run early with the iterations that are done, as long as every chain has one draw to keep.
    """
    kind = WideChain if prior.wide else Chain
    chains: list[Chain] = [kind(likelihood, prior, settings, rng) for rng in generators]
    save = None
    if checkpoint is not None:
        seeds = [rng.bit_generator.state for rng in generators]
        key = files.fingerprint(likelihood, prior, settings, len(chains), seeds)
        save = functools.partial(files.write, checkpoint, chains, key)
        if Path(checkpoint).exists():
            files.read(checkpoint, chains, key)
    if not running.run(chains, n_iter, n_jobs, progress, save) and not all(chain.draws["theta"] for chain in chains):
        raise KeyboardInterrupt
    return chains
