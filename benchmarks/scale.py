"""One chain over more and more rows, beside linkages: time, memory, how soon it is at home, and whether supports hold.

Run by `python -m benchmarks.chain --scale`, which writes the page. Every method and size has a fresh process.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import linkage

import coaltree as ct
from benchmarks.linkage import status

CHAIN = "coaltree, one chain"
DIMENSION = 16
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
# A chain's iterations, and how many of them are dropped; fewer of very many rows.
ITERATIONS, WARMUP = 300, 150
MANY, ITERATIONS_OF_MANY, WARMUP_OF_MANY = 100_000, 140, 40
BINS = np.append(np.arange(0.1, 0.95, 0.1), [0.999999, 1.1])
# Beyond these a method takes too long or, by its n²/2 distances, too much memory.
MOST_LEAVES = {"scipy average": 30_000, "fastcluster average": 30_000}
MOST_SECONDS = 1800  # after which a linkage is stopped
RETURNS = {
    CHAIN: "trees from the posterior with their scale and noise: supports of all clades",
    "scipy average": "one tree",
    "fastcluster average": "one tree",
    "genieclust": "one tree, of a spanning tree",
    "hdbscan": "one tree, of a spanning tree; clusters and outliers",
}
ONE_THREAD = {**os.environ, **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}}
WORDS = """
Rows from the model, spherical covariance and leaf noise learned. The iterations after warm-up are kept as draws. CPU of
one thread after compilation. Exponents: growth with n since the row above. *At home*: the iteration from which on the
log joint stays within three standard deviations of the mean of its last half. Memory: peak of the process, and in
brackets what of it came after the data were loaded and the code compiled, draws included.
"""
Row = dict[str, Any]


def simulate(n: int) -> tuple[ct.Tree, Any]:
    """A tree from the coalescent, and rows along it with variance 1 and no leaf noise."""
    tree = ct.sample_tree(n, random_state=1)
    return tree, ct.sample_data(tree, DIMENSION, random_state=2)


def methods() -> dict[str, Callable[[Any], object]]:
    """Linkages that are installed."""
    found: dict[str, Callable[[Any], object]] = {"scipy average": lambda X: linkage(X, "average")}
    if importlib.util.find_spec("fastcluster"):
        import fastcluster

        found["fastcluster average"] = lambda X: fastcluster.linkage(X, "average")
    if importlib.util.find_spec("genieclust"):
        import genieclust

        found["genieclust"] = lambda X: genieclust.Genie(n_clusters=1).fit(X)
    if importlib.util.find_spec("hdbscan"):
        import hdbscan

        found["hdbscan"] = lambda X: hdbscan.HDBSCAN(core_dist_n_jobs=1).fit(X).single_linkage_tree_
    return found


# ---- in a process of its own


def peak_from_here() -> int:
    """Begin the peak of memory anew; return what the process holds now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return status("VmRSS")


def run_linkage(name: str, n: int) -> Row:
    """Measure a linkage."""
    _, X = simulate(n)
    run = methods()[name]
    run(np.random.default_rng(0).normal(size=(100, DIMENSION)))
    held, began = peak_from_here(), time.process_time()
    run(X)
    seconds = time.process_time() - began
    return {"seconds": seconds, "peak": status("VmHWM"), "held": held}


def start_chain(X: Any, warmup: int, seed: int = 0) -> Any:
    """Return a chain at its start: scale and leaf noise are learned."""
    from coaltree.inference.learning import chain as learn
    from coaltree.model.covariance import Spherical
    from coaltree.model.noise import SHARED

    rng, family = np.random.default_rng(seed), Spherical()
    (start,), near = learn.first_guesses(X, family, SHARED, 1, rng)
    return learn.TreeChain(X, family, learn.ChainSettings(warmup), start, near, rng)


def run_chain(n: int) -> Row:
    """Measure one chain."""
    iterations, warmup = (ITERATIONS, WARMUP) if n < MANY else (ITERATIONS_OF_MANY, WARMUP_OF_MANY)
    for size in (200, 2_000):  # compiles: of many rows the start is another
        small = start_chain(simulate(size)[1], 1)
        small.advance()
        small.advance()
    truth, X = simulate(n)
    held, began = peak_from_here(), time.process_time()
    chain = start_chain(X, warmup)
    started = time.process_time()
    for k in range(iterations):
        chain.advance()
        if k % 50 == 49:
            joint = chain.trace["log_joint"][-1]
            print(f"{n} rows, iteration {k + 1}: log joint {joint:,.0f}", file=sys.stderr, flush=True)
    ended = time.process_time()
    peak = status("VmHWM")
    children = np.array([draw.children for draw in chain.draws])
    return {
        "seconds": ended - began,
        "start": started - began,
        "iteration": (ended - started) / iterations,
        "iterations": iterations,
        "peak": peak,
        "held": held,
        "log_joint": np.round(chain.trace["log_joint"], 1).tolist(),
        "calibration": calibration(children, truth),
        "draws": len(children),
    }


def at_home(log_joint: Any) -> int:
    """Return the iteration from which on the log joint stays within three deviations of the last half's mean."""
    last = log_joint[len(log_joint) // 2 :]
    outside = np.abs(log_joint - last.mean()) > 3.0 * last.std()
    return 2 + int(np.flatnonzero(outside[: len(log_joint) // 2]).max(initial=-1))


def calibration(children: Any, truth: ct.Tree) -> list[list[float]]:
    """Clades by bins of support: their number, how many are true, and the sum of their supports; the root apart."""
    from coaltree.posterior.consensus import clade_ids, support_of_clades

    ids = clade_ids(np.concatenate((children, truth.children[None].astype(children.dtype))))
    support = support_of_clades(ids[:-1], np.full(len(children), 1.0 / len(children)))
    true = np.zeros(int(ids.max()) + 1, dtype=bool)
    true[ids[-1]] = True
    true, support = true[: len(support)], support.copy()
    support[ids[0, -1]] = 0.0
    bins = np.digitize(support, BINS)
    return [
        [int((bins == k).sum()), int(true[bins == k].sum()), float(support[bins == k].sum())]
        for k in range(1, len(BINS))
    ]


def run_one(name: str, n: int) -> None:
    """Measure one method at one size in this process, and print it."""
    print(json.dumps({"method": name, "n": n, **(run_chain(n) if name == CHAIN else run_linkage(name, n))}))


# ---- all of them


def measure(sizes: list[int]) -> Iterator[Row]:
    """Yield a row a method and size; what fails or takes too long says so."""
    for n in sizes:
        for name in (CHAIN, *methods()):
            if n > MOST_LEAVES.get(name, n):
                continue
            command = [sys.executable, "-m", "benchmarks.chain", "--one", name, "--size", str(n)]
            limit = None if name == CHAIN else MOST_SECONDS
            try:
                done = subprocess.run(
                    command, check=True, stdout=subprocess.PIPE, text=True, timeout=limit, env=ONE_THREAD
                )
            except subprocess.SubprocessError as error:
                yield {"method": name, "n": n, "failed": type(error).__name__}
                continue
            yield json.loads(done.stdout.splitlines()[-1])


def exponent(rows: list[Row], what: str, k: int) -> str:
    """Growth since the size before."""
    if k == 0:
        return ""
    ratio = math.log(rows[k][what] / rows[k - 1][what]) / math.log(rows[k]["n"] / rows[k - 1]["n"])
    return f"{ratio:.2f}"


def page(rows: list[Row]) -> list[str]:
    """Tables: the chain, its supports, and what linkages take."""
    chains = sorted((row for row in rows if row["method"] == CHAIN and "failed" not in row), key=lambda row: row["n"])
    lines = [
        f"## One chain over many rows, d = {DIMENSION}",
        "",
        WORDS,
        "",
        "| n | iterations (warm-up) | start, CPU s | exponent | an iteration, CPU s | exponent | all, CPU s | peak MB "
        "| at home from |",
        "|---" * 9 + "|",
    ]
    for k, row in enumerate(chains):
        home = at_home(np.array(row["log_joint"]))
        lines.append(
            f"| {row['n']:,} | {row['iterations']} ({row['iterations'] - row['draws']}) "
            f"| {row['start']:.2f} | {exponent(chains, 'start', k)} | {row['iteration']:.3f} "
            f"| {exponent(chains, 'iteration', k)} | {row['seconds']:.0f} | {memory(row)} | {home} |"
        )
    lines += ["", "Of the clades whose support lies in a bin, the share that is true (and their number):", ""]
    names = [f"{low:.1f}–{high:.1f}" for low, high in zip(BINS[:-2], [*BINS[1:-2], 1.0], strict=True)] + ["1"]
    lines += ["| n | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in chains:
        cells = [f"{true / number:.2f} ({number:,})" if number else "" for number, true, _ in row["calibration"]]
        lines.append(f"| {row['n']:,} | " + " | ".join(cells) + " |")
    sizes = sorted({row["n"] for row in rows})
    taken = {(row["method"], row["n"]): row for row in rows}
    lines += ["", "CPU seconds, and peak MB as above, beside linkages of the same rows in the same run:", ""]
    lines += [
        "| | what it returns | " + " | ".join(f"n = {n:,}" for n in sizes) + " |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    for name, returned in RETURNS.items():
        found = [taken.get((name, n)) for n in sizes]
        cells = ["" if row is None else taken_by(row) for row in found]
        lines.append(f"| {name} | {returned} | " + " | ".join(cells) + " |")
    most = ", ".join(f"{name} {n:,}" for name, n in MOST_LEAVES.items())
    return [*lines, "", f"Left out beyond so many rows, for time and memory: {most}.", "", "![CPU time](chain.svg)", ""]


def taken_by(row: Row) -> str:
    """Time and memory, or what went wrong."""
    return str(row["failed"]) if "failed" in row else f"{row['seconds']:.2f} s, {memory(row)} MB"


def memory(row: Row) -> str:
    """Peak, and how far it rose, in MB."""
    return f"{row['peak'] / 1e6:,.0f} ({max(row['peak'] - row['held'], 0) / 1e6:,.0f})"


def picture(rows: list[Row], path: Path) -> None:
    """CPU seconds over n, log–log: a whole chain, an iteration of it, and linkages."""
    import matplotlib.pyplot as plt

    rows = sorted((row for row in rows if "failed" not in row), key=lambda row: row["n"])
    figure, axes = plt.subplots(figsize=(7.2, 4.8), layout="constrained")

    def draw(name: str, what: str, label: str, **look: Any) -> None:
        chosen = [row for row in rows if row["method"] == name]
        if chosen:
            sizes, values = [row["n"] for row in chosen], [row[what] for row in chosen]
            axes.loglog(sizes, values, marker="o", markersize=4, label=label, **look)

    draw(
        CHAIN,
        "seconds",
        "chain, all iterations",
        color="#0072B2",
        linewidth=2,
    )
    draw(CHAIN, "iteration", "chain, one iteration", color="#0072B2", linestyle=":")
    draw(CHAIN, "start", "chain, its start", color="#56B4E9", linestyle="-.")
    for name, colour in zip(list(RETURNS)[1:], ("#000000", "#7F7F7F", "#D55E00", "#009E73"), strict=True):
        draw(name, "seconds", f"{name}: one tree", color=colour, linestyle="--")
    sizes = sorted({row["n"] for row in rows})
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.minorticks_off()
    axes.set(
        xlabel="rows n", ylabel="CPU seconds, one thread", title=f"Trees of n rows from the model, d = {DIMENSION}"
    )
    axes.legend(fontsize=8, frameon=False, handlelength=3.5)
    axes.grid(alpha=0.3)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150, metadata={"Date": None} if suffix == ".svg" else None)
    plt.close(figure)
