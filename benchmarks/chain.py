"""The chain that learns trees: beside the learner it replaced, over many rows, and from two starts on real tables.

    python -m benchmarks.chain                                   # beside conditional SMC, about ten minutes of CPU
    python -m benchmarks.chain --scale [--most 100000]           # one chain of 1 000, 3 000, … rows beside linkages
    python -m benchmarks.chain --real digits usps --data FOLDER  # two chains from different starts
    python -m benchmarks.chain --real letter --letter FILE       # 20 000 × 16 integers (UCI's file, or an ARFF file)
    python -m benchmarks.chain --real usps --data FOLDER --rows 1000 [--components 16]   # some rows, fewer columns

Each writes its part of benchmarks/chain.md from all that is in chain.json; parts that are not run stay as they were.
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from papers.henao_lucas import particle_gibbs
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import coaltree as ct
from benchmarks import scale
from coaltree.inference.effort import settle
from coaltree.inference.learning import chain as learn
from coaltree.model.covariance import Spherical
from coaltree.posterior.convergence import compare_supports, diagnose

OUT = Path(__file__).with_suffix(".json")
OLD, NEW = "conditional SMC", "chain"
# Particles of the learner before, by default; CPU seconds that each learner has; share of its iterations to be dropped.
N_PARTICLES, OLD_SECONDS, NEW_SECONDS, DROPPED = 50, 240.0, 30.0, 0.2
# Effective sizes of fewer draws than this are not told: their number is the bound.
FEWEST = 20
Row = dict[str, Any]

COMPARED = f"""
The learner before drew a tree by conditional SMC, {N_PARTICLES} particles of the sampler that `auto` takes, and then by
at most {particle_gibbs.MOST_REGRAFTS} regrafts (`papers/henao_lucas/particle_gibbs.py`); the other blocks, the start
and the model (spherical covariance and leaf noise learned) are the same. CPU of one thread after compilation, warm-up
apart: its default length for the chain, a fifth of the iterations for conditional SMC. Effective draws by ArviZ (bulk):
of the log joint, and of a clade (there or not), the median over clades with support 0.1–0.9. *≤*: fewer than {FEWEST}
draws, which do not tell; their number is the bound.
"""
ON_THE_WAY = """
After so few iterations conditional SMC on digits is still on its way from the start: the chain passes the same log
joint within its first ten iterations.
"""
TWO_CHAINS = """
Chains from different starts (greedy trees, the second of rows moved half the way to the next). *Correlation* and
*difference* (root mean square) are of the supports that both give to the same clades, among those that either gives at
least 0.1; supports from so many draws differ by chance as well. *Effective*: draws of a clade, median. CPU of both
chains, with what is compiled or loaded. USPS in all its 256 columns was measured with effective columns, the others
before there were any; docs/chain.md tells what they change.
"""


def digits(n: int = 1797) -> Any:
    """Return images of digits by 16 principal components."""
    X = PCA(16, random_state=0).fit_transform(load_digits().data)
    return X[np.random.default_rng(0).permutation(len(X))[:n]]


# ---- beside the learner before


def compare(quick: bool) -> Iterator[Row]:
    """Effective draws of log joint and of clades a CPU second, by both learners from the same start."""
    share = 0.05 if quick else 1.0
    cases = {"300 × 16, from the model": ct.sample_data(ct.sample_tree(300, random_state=1), 16, random_state=2)}
    n = 500 if quick else 1797
    cases[f"digits, {n} × 16"] = digits(n)
    for name, X in cases.items():
        yield {"data": name, "learner": NEW, **run_new(X, share * NEW_SECONDS)}
        yield {"data": name, "learner": OLD, **run_old(X, share * OLD_SECONDS)}


def run_new(X: Any, seconds: float) -> Row:
    """Run one chain: its default warm-up, then as many iterations as it has seconds for."""
    compiling = scale.start_chain(X, 1)
    compiling.advance()
    compiling.advance()
    warmup = settle(len(X)).warmup
    began = time.process_time()
    chain = scale.start_chain(X, warmup)
    for _ in range(warmup):
        chain.advance()
    ready = time.process_time()
    while not chain.draws or time.process_time() - ready < seconds:
        chain.advance()
    taken = time.process_time() - ready
    children = np.array([draw.children for draw in chain.draws])
    joint = np.array(chain.trace["log_joint"][warmup:])
    return {"dropped": warmup, "dropped_seconds": ready - began, **worth(joint, children, taken)}


def run_old(X: Any, seconds: float) -> Row:
    """Run conditional SMC and a sweep of moves, for so many seconds."""
    small = X[:200]
    compiling = particle_gibbs.iterations(small, Spherical(), None, "auto", N_PARTICLES, np.random.default_rng(0))
    next(compiling)
    began = time.process_time()
    ends, draws, joints = [], [], []
    for now in particle_gibbs.iterations(X, Spherical(), None, "auto", N_PARTICLES, np.random.default_rng(0)):
        draws.append(now.tree.children.astype(np.int32))
        joints.append(learn.log_joint_of(now, X))
        ends.append(time.process_time() - began)
        if ends[-1] > seconds and len(ends) > 1:
            break
    first = max(1, int(DROPPED * len(draws)))
    taken = ends[-1] - ends[first - 1]
    return {
        "dropped": first,
        "dropped_seconds": ends[first - 1],
        **worth(np.array(joints[first:]), np.array(draws[first:]), taken),
    }


def worth(log_joint: Any, children: Any, seconds: float) -> Row:
    """Effective sizes, by ArviZ (bulk); None where there are too few draws to tell."""
    found = diagnose({"log_joint": log_joint[None]}, children, 1)
    sizes = {"joint": found.bulk_ess["log_joint"], "clades": found.clade_ess}
    told = {name: size if math.isfinite(size) and len(children) >= FEWEST else None for name, size in sizes.items()}
    return {"iterations": len(log_joint), "seconds": seconds, "last_joint": float(log_joint[-1]), **told}


def size_of(row: Row, what: str) -> tuple[float, str]:
    """Effective size; where it cannot be told the number of draws, which bounds it."""
    return (row["iterations"], "≤ ") if row[what] is None else (row[what], "")


def compared_page(rows: list[Row]) -> list[str]:
    """Table of both learners, and the ratio."""
    lines = [
        "## Beside conditional SMC",
        "",
        COMPARED,
        "",
        "| data | learner | warm-up | iterations | CPU s | CPU s an iteration | last log joint "
        "| effective, log joint | effective, clades | a CPU s, log joint | a CPU s, clades |",
        "|---" * 11 + "|",
    ]
    told = []
    for name in dict.fromkeys(row["data"] for row in rows):
        pair = {row["learner"]: row for row in rows if row["data"] == name}
        for learner, row in pair.items():
            (joint, bound), (clades, bound_of_clades) = size_of(row, "joint"), size_of(row, "clades")
            lines.append(
                f"| {name} | {learner} | {row['dropped']} ({row['dropped_seconds']:.0f} s) | {row['iterations']} "
                f"| {row['seconds']:.0f} | {row['seconds'] / row['iterations']:.3g} | {row['last_joint']:,.0f} "
                f"| {bound}{joint:.0f} | {bound_of_clades}{clades:.0f} | {bound}{joint / row['seconds']:.3g} "
                f"| {bound_of_clades}{clades / row['seconds']:.3g} |"
            )
        if len(pair) == 2:
            parts = []
            for what, words in (("joint", "the log joint"), ("clades", "clades")):
                size, bound = size_of(pair[OLD], what)
                ratio = size_of(pair[NEW], what)[0] / pair[NEW]["seconds"] / (size / pair[OLD]["seconds"])
                parts.append(f"{'at least ' if bound else ''}{ratio:,.0f} times as many of {words}")
            told += [f"{name}: the chain makes {' and '.join(parts)} a CPU second.", ""]
    return [*lines, "", *told, ON_THE_WAY, ""]


# ---- two chains on real tables


def real_table(name: str, options: argparse.Namespace) -> Any:
    """Return the rows of a table."""
    if name == "digits":
        return digits(1000)
    if name == "usps":
        if not options.data:
            raise SystemExit("usps needs --data FOLDER, with usps.npz (X, 256 columns).")
        with np.load(options.data / "usps.npz") as file:
            return file["X"].astype(float)
    if not options.letter:
        raise SystemExit("letter needs --letter FILE: letter-recognition.data or letter.arff.")
    text = np.loadtxt(options.letter, delimiter=",", dtype=str, ndmin=2, comments=["%", "@"])
    X = text[:, [not value.strip().isalpha() for value in text[0]]].astype(float)
    # Integers have many equal rows: a uniform dither makes them numbers that were rounded.
    return X + np.random.default_rng(0).uniform(-0.5, 0.5, X.shape)


def narrowed(X: Any, name: str, options: argparse.Namespace) -> tuple[Any, str]:
    """Some rows at random and leading principal components, if asked for, and what to call the table then."""
    if options.rows and options.rows < len(X):
        X = X[np.random.default_rng(0).permutation(len(X))[: options.rows]]
    if options.components:
        X, name = PCA(options.components, random_state=0).fit_transform(X), f"{name} by components"
    return X, name


def two_chains(name: str, options: argparse.Namespace) -> Row:
    """Learn by two chains from different starts, and compare the supports they give to clades."""
    X, name = narrowed(real_table(name, options), name, options)
    how = {"warmup": options.warmup, "n_draws": options.draws}
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the page says how far they are apart
        learned = ct.learn_posterior(X, options.covariance, n_chains=2, progress=True, **how)
    seconds = time.process_time() - began
    difference, correlation = compare_supports(learned.posterior.children, 2)
    assert learned.convergence is not None
    return {
        "data": f"{name}, {len(X)} × {X.shape[1]}",
        "covariance": options.covariance,
        "sweeps": learned.trace["log_joint"].shape[1],
        "warmup": learned.warmup,
        "draws": len(learned.posterior) // 2,
        "correlation": correlation,
        "difference": difference,
        "r_hat": learned.convergence.r_hat["log_joint"],
        "clade_ess": learned.convergence.clade_ess,
        "joint": learned.trace["log_joint"][:, learned.warmup :].mean(axis=1).tolist(),
        "seconds": seconds,
    }


def real_page(rows: list[Row]) -> list[str]:
    """Table of what two chains agree on."""
    lines = [
        "## Two chains on real tables",
        "",
        TWO_CHAINS,
        "",
        "| data | covariance | sweeps a chain (warm-up) | draws a chain | correlation | difference "
        "| R-hat, log joint | effective | CPU s |",
        "|---" * 9 + "|",
    ]
    for row in rows:
        lines.append(
            f"| {row['data']} | {row['covariance']} | {row['sweeps']} ({row['warmup']}) | {row['draws']} "
            f"| {row['correlation']:.3f} | {row['difference']:.3f} | {row['r_hat']:.2f} | {row['clade_ess']:.0f} "
            f"| {row['seconds']:.0f} |"
        )
    return [*lines, ""]


# ---- the page


PAGES = {"compared": compared_page, "scale": scale.page, "real": real_page}


def keep(part: str, row: Row, keys: tuple[str, ...], out: Path) -> None:
    """Put a row in place of the one with the same keys, and write the page: what is done is kept."""
    stored = json.loads(out.read_text("utf-8")) if out.exists() else {}
    rows = [other for other in stored.get(part, []) if any(other[key] != row[key] for key in keys)]
    stored[part] = [*rows, {**row, "version": ct.__version__, "date": datetime.now(UTC).strftime("%Y-%m-%d")}]
    out.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(json.dumps(row, ensure_ascii=False), flush=True)
    write_page(out)


def write_page(out: Path) -> None:
    """Write the page from what is stored."""
    stored = json.loads(out.read_text("utf-8"))
    lines = ["# The chain that learns", "", f"Made by `python -m benchmarks.chain`, coaltree {ct.__version__}.", ""]
    for part, page in PAGES.items():
        if part in stored:
            lines += page(stored[part])
    whole = [line if line.startswith(("|", "#")) else textwrap.fill(" ".join(line.split()), 120) for line in lines]
    out.with_suffix(".md").write_text("\n".join(whole), "utf-8")
    if "scale" in stored:
        scale.picture(stored["scale"], out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", action="store_true", help="one chain over many rows, beside linkages")
    parser.add_argument("--least", type=int, default=0, help="leave out smaller sizes: those stay as they were")
    parser.add_argument("--most", type=int, default=100_000, help="leave out larger sizes")
    parser.add_argument("--real", nargs="+", choices=("digits", "usps", "letter"), help="two chains on these tables")
    parser.add_argument("--data", type=Path, help="folder with usps.npz")
    parser.add_argument("--letter", type=Path, help="file of letter recognition, comma separated")
    parser.add_argument("--rows", type=int, help="so many rows at random, of --real")
    parser.add_argument("--components", type=int, help="so many leading principal components, of --real")
    parser.add_argument("--covariance", default="spherical")
    parser.add_argument("--warmup", type=int, help="iterations, of --real; default: by the number of rows")
    parser.add_argument("--draws", type=int, help="of both chains together, of --real; likewise")
    parser.add_argument("--quick", action="store_true", help="the comparison with a twentieth of the time")
    parser.add_argument("--page", action="store_true", help="run nothing: write the page from chain.json")
    parser.add_argument("--out", type=Path, default=OUT, help="file of results (.json); the page is beside it")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with threadpool_limits(1):
        if options.one:
            scale.run_one(options.one, options.size)
        elif options.page:
            write_page(options.out)
        elif options.scale:
            sizes = [n for n in scale.SIZES if options.least <= n <= options.most]
            for row in scale.measure(sizes):
                keep("scale", row, ("method", "n"), options.out)
        elif options.real:
            for name in options.real:
                keep("real", two_chains(name, options), ("data", "covariance"), options.out)
        else:
            for row in compare(options.quick):
                keep("compared", row, ("data", "learner"), options.out)


if __name__ == "__main__":
    main()
