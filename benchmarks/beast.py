"""The chain on trees beside BEAST 1.10, an independent program with the same model: same posterior, and how fast.

    python -m benchmarks.beast [--quick]     # about ten minutes of CPU; apt install beast-mcmc

Brownian motion along a coalescent tree with known covariance and no leaf noise. Both programs run one chain on one
thread from the same data. BEAST has its operators for trees: leaps, slides, exchanges, Wilson–Balding, scaled and
uniform heights, tuned by itself. The results go to benchmarks/beast.md.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

import coaltree as ct
from coaltree.formats import from_nexus
from coaltree.posterior.clades import clade_ids, support_of_clades
from coaltree.posterior.diagnostics import effective_sizes

Floats = npt.NDArray[np.float64]
PROGRAM = "beast-mcmc"
OUT = Path(__file__).with_suffix(".md")
# Rows, columns, BEAST's steps, our warm-up and draws.
CASES = (
    (20, 4, 2_000_000, 100, 4000),
    (50, 4, 4_000_000, 100, 4000),
    (100, 6, 6_000_000, 150, 3000),
    (300, 8, 10_000_000, 200, 2000),
)
N_KEPT, BURN_IN = 2000, 0.2
# Clades with a support between these count; supports of the others hardly vary.
LEAST, MOST = 0.1, 0.9

OPERATORS = """
<subtreeLeap size="1.0" weight="40"><treeModel idref="tree"/></subtreeLeap>
<subtreeSlide size="1.0" gaussian="true" weight="15"><treeModel idref="tree"/></subtreeSlide>
<narrowExchange weight="15"><treeModel idref="tree"/></narrowExchange>
<wideExchange weight="3"><treeModel idref="tree"/></wideExchange>
<wilsonBalding weight="3"><treeModel idref="tree"/></wilsonBalding>
<scaleOperator scaleFactor="0.75" weight="3"><parameter idref="root.height"/></scaleOperator>
<uniformOperator weight="30"><parameter idref="inner.heights"/></uniformOperator>"""

PAGE = """# Beside BEAST

`python -m benchmarks.beast`: Brownian motion on a coalescent tree, covariance known, no leaf noise, one chain each on
one thread, effective draws a CPU second with warm-up and compilation apart: of the log joint, and of a clade (there or
not), the median over clades with a support of .1–.9. *Supports*: root mean square difference of the two programs'
supports of these clades, and what Monte Carlo error alone would make it. *Apart*: the range, over all trees that BEAST
drew, of its log joint less ours; programs that agree differ by a constant.

| n × d | joint: BEAST | coaltree | ratio | clade: BEAST | coaltree | ratio | supports | by error | clades | apart |
|---|---|---|---|---|---|---|---|---|---|---|"""


class Run(NamedTuple):
    """The draws of one program."""

    children: npt.NDArray[Any]  # (M, n−1, 2)
    log_joint: Floats  # (M,)
    cpu: float  # seconds, warm-up apart


def describe(X: Floats, n_steps: int) -> str:
    """The model, the data and the run in BEAST's XML; the flat root is a normal prior with a variance of 10⁸."""
    d = X.shape[1]
    taxa = "".join(
        f'<taxon id="t{i}"><attr name="x">{" ".join(repr(float(x)) for x in row)}</attr></taxon>\n'
        for i, row in enumerate(X)
    )
    columns = "".join(f'<parameter id="c{k}" value="{" ".join(map(str, np.eye(d)[k]))}"/>' for k in range(d))
    every = n_steps // N_KEPT
    return f"""<?xml version="1.0"?>
<beast>
<taxa id="taxa">{taxa}</taxa>
<constantSize id="size" units="years"><populationSize>
<parameter id="population" value="1.0"/></populationSize></constantSize>
<coalescentSimulator id="start"><taxa idref="taxa"/><constantSize idref="size"/></coalescentSimulator>
<treeModel id="tree"><coalescentTree idref="start"/>
<rootHeight><parameter id="root.height"/></rootHeight>
<nodeHeights internalNodes="true"><parameter id="inner.heights"/></nodeHeights>
<nodeHeights internalNodes="true" rootNode="true"><parameter id="all.heights"/></nodeHeights></treeModel>
<coalescentLikelihood id="coalescent"><model><constantSize idref="size"/></model>
<populationTree><treeModel idref="tree"/></populationTree></coalescentLikelihood>
<multivariateDiffusionModel id="diffusion"><precisionMatrix><matrixParameter id="precision">{columns}</matrixParameter>
</precisionMatrix></multivariateDiffusionModel>
<traitDataLikelihood id="trait" traitName="x" useTreeLength="false" scaleByTime="false" reportAsMultivariate="true"
 integrateInternalTraits="true"><multivariateDiffusionModel idref="diffusion"/><treeModel idref="tree"/>
<traitParameter><parameter id="leaf.x"/></traitParameter>
<conjugateRootPrior><meanParameter><parameter id="root.mean" value="{" ".join(["0"] * d)}"/></meanParameter>
<priorSampleSize><parameter id="root.size" value="1E-8"/></priorSampleSize></conjugateRootPrior></traitDataLikelihood>
<operators id="operators" optimizationSchedule="default">{OPERATORS}</operators>
<mcmc id="mcmc" chainLength="{n_steps}" autoOptimize="true">
<posterior id="posterior"><prior id="prior"><coalescentLikelihood idref="coalescent"/></prior>
<likelihood id="likelihood"><traitDataLikelihood idref="trait"/></likelihood></posterior>
<operators idref="operators"/>
<log id="numbers" logEvery="{every}" fileName="run.log"><posterior idref="posterior"/></log>
<logTree id="trees" logEvery="{every}" nexusFormat="true" fileName="run.trees"><treeModel idref="tree"/></logTree>
</mcmc>
</beast>"""


def in_order(tree: ct.Tree) -> ct.Tree:
    """The tree with leaf i named ti: BEAST has an order of its own."""
    assert tree.names is not None
    node = np.append([int(name[1:]) for name in tree.names], np.arange(tree.n_leaves, 2 * tree.n_leaves - 1))
    return ct.Tree(node[tree.children], tree.times)


def run_beast(X: Floats, n_steps: int, seed: int = 1) -> tuple[Run, Floats]:
    """One chain of BEAST, and how far its log joint of each tree is from ours."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run.xml").write_text(describe(X, n_steps))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [PROGRAM, "-java", "-threads", "1", "-overwrite", "-seed", str(seed), "run.xml"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        log_joint = np.loadtxt(Path(folder, "run.log"), comments="#", skiprows=4)[:, 1]
        trees = from_nexus(Path(folder, "run.trees").read_text())
    first = int(BURN_IN * len(trees))
    trees, log_joint = trees[first:], log_joint[first:]
    trees = [in_order(tree) for tree in trees]
    ours = np.array([ct.log_joint(tree, X, np.eye(X.shape[1])) for tree in trees])
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * (1.0 - BURN_IN)
    return Run(np.array([tree.children for tree in trees]), log_joint, cpu), log_joint - ours


def run_coaltree(X: Floats, warmup: int, n_draws: int, seed: int = 1) -> Run:
    """One chain of ours."""

    def learn(warmup: int, n_draws: int) -> ct.TreePosterior:
        found = ct.learn_posterior(
            X, np.eye(X.shape[1]), leaf_noise=0.0, warmup=warmup, n_draws=n_draws, n_chains=1, thin=1, random_state=seed
        )
        return found.posterior

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # eight draws only compile, and time the warm-up
        learn(2, 8)
        start = time.process_time()
        learn(warmup, 8)
    warmed = time.process_time()
    posterior = learn(warmup, n_draws)
    cpu = time.process_time() - warmed - (warmed - start)
    return Run(np.asarray(posterior.children), np.asarray(posterior.log_joint), cpu)


def clade_draws(ids: npt.NDArray[Any], clades: npt.NDArray[Any]) -> Floats:
    """Which draws have which clades, (M, C)."""
    return np.stack([(ids == clade).any(axis=1) for clade in clades], axis=1).astype(float)


def compare(beast: Run, ours: Run) -> dict[str, float]:
    """Effective draws a CPU second, their ratio, and the difference of clade supports in standard errors."""
    ids = clade_ids(np.concatenate([beast.children, ours.children]))
    support = support_of_clades(ids, np.full(len(ids), 1.0 / len(ids)))
    uncertain = np.flatnonzero((support >= LEAST) & (support <= MOST))
    per_second, means, errors = [], [], []
    for run, own in ((beast, ids[: len(beast.children)]), (ours, ids[len(beast.children) :])):
        there = clade_draws(own, uncertain)
        worth = effective_sizes(there[None])
        joint = float(effective_sizes(run.log_joint[None, :, None])[0])
        mean = there.mean(axis=0)
        per_second.append((joint / run.cpu, float(np.nanmedian(worth)) / run.cpu))
        means.append(mean)
        errors.append(mean * (1.0 - mean) / np.maximum(np.nan_to_num(worth, nan=1.0), 1.0))
    difference = means[0] - means[1]
    expected = np.sqrt(np.mean(errors[0] + errors[1]))
    return {
        "beast_joint": per_second[0][0],
        "ours_joint": per_second[1][0],
        "beast_clade": per_second[0][1],
        "ours_clade": per_second[1][1],
        "rms": float(np.sqrt(np.mean(difference**2))),
        "expected": float(expected),
        "n_clades": len(uncertain),
    }


def simulate(n: int, d: int) -> Floats:
    """A table from the model."""
    return np.asarray(ct.sample_data(ct.sample_tree(n, random_state=n), np.eye(d), random_state=n + 1))


def report(rows: list[tuple[int, int, dict[str, float]]]) -> str:
    """The page."""
    lines = [PAGE]
    for n, d, row in rows:
        joint, clade = (row[f"ours_{of}"] / row[f"beast_{of}"] for of in ("joint", "clade"))
        lines.append(
            f"| {n} × {d} | {row['beast_joint']:.2f} | {row['ours_joint']:.1f} | {joint:.0f}"
            f" | {row['beast_clade']:.2f} | {row['ours_clade']:.1f} | {clade:.0f}"
            f" | {row['rms']:.3f} | {row['expected']:.3f} | {row['n_clades']} | {row['apart']:.1e} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run both programs on every case and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps, and only print")
    quick = parser.parse_args().quick
    if shutil.which(PROGRAM) is None:
        sys.exit(f"{PROGRAM} is not installed: apt install beast-mcmc, or put BEAST 1.10 on the path by that name.")
    rows = []
    for n, d, n_steps, warmup, n_draws in CASES:
        X = simulate(n, d)
        beast, difference = run_beast(X, n_steps // 10 if quick else n_steps)
        ours = run_coaltree(X, warmup, n_draws // 10 if quick else n_draws)
        rows.append((n, d, compare(beast, ours) | {"apart": float(np.ptp(difference))}))
        print(report(rows[-1:]).splitlines()[-1], flush=True)
    if not quick:
        OUT.write_text(report(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
