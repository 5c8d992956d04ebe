"""Trees at linkage speed: CPU time of greedy trees and of one particle beside linkage, as ratios; growth; memory.

python -m benchmarks             # writes benchmarks/linkage.md and its picture
python -m benchmarks --quick     # n up to 1000, prints only

Every method runs in turn on the same data, again and again, on one thread, and the medians are divided. Compile time
is reported apart. Peak memory is that of a fresh process per method, beyond what it holds when the data are loaded and
the code is compiled.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import linkage
from sklearn.cluster import AgglomerativeClustering
from threadpoolctl import threadpool_limits

import coaltree as ct
from benchmarks.naive import sample_trees

BASE = "scipy average"
CASES = [
    (500, 16),
    (1000, 16),
    (2500, 16),
    (2500, 4),
    (2500, 256),
    (5000, 16),
    (10_000, 16),
    (10_000, 256),
    (20_000, 16),
]
# Growth is told from here on, if there are larger cases: below it is not the n² that counts.
GROWTH_FROM = 2500
QUICK = [(500, 16), (1000, 4), (1000, 16), (1000, 256)]
PEERS = {"fastcluster": "fastcluster average", "genieclust": "genieclust"}
# What would take too long beyond some n.
MOST_LEAVES = {"greedy truncated_mean": 1000, "smc1, one particle": 10_000, "sklearn ward": 10_000}
# Measured for their memory only, and apart.
MANY, NEAR, NEIGHBORS = "tpost, ten particles", "near neighbours", 16
# The paper's table 2: seconds of MPost2 at n = d = 64, M = 100, on a 2.8 GHz core.
PAPER_SECONDS = 6.1
Seconds = dict[tuple[int, int], dict[str, float]]


@functools.cache
def data(n: int, d: int) -> Any:
    """Rows of a coalescent tree with Brownian motion of unit variance."""
    return ct.sample_data(ct.sample_tree(n, random_state=1), d, random_state=2)


def methods() -> dict[str, Callable[[Any], object]]:
    """Everything that can be timed here, by name."""
    found: dict[str, Callable[[Any], object]] = {
        BASE: lambda X: linkage(X, "average"),
        "sklearn ward": lambda X: AgglomerativeClustering(compute_full_tree=True).fit(X),
    }
    if importlib.util.find_spec("fastcluster"):
        import fastcluster

        found["fastcluster average"] = lambda X: fastcluster.linkage(X, "average")
    if importlib.util.find_spec("genieclust"):
        import genieclust

        found["genieclust"] = lambda X: genieclust.Genie(n_clusters=1).fit(X)
    for rule in ("mean", "mode", "peak", "truncated_mean"):
        found[f"greedy {rule}"] = lambda X, rule=rule: ct.greedy_tree(X, rule=rule)
    for method in ("tpost", "smc1"):
        found[f"{method}, one particle"] = lambda X, method=method: ct.sample_posterior(X, method=method, n_particles=1)
    return found


def ten_particles(X: Any) -> object:
    """Their trees."""
    return ct.sample_posterior(X, method="tpost", n_particles=10)


def near_tree(X: Any) -> ct.Tree:
    """The greedy tree of near neighbours."""
    return ct.greedy_tree(X, neighbors=NEIGHBORS)


def cpu_seconds(run: Callable[[Any], object], X: Any) -> float:
    """CPU time of one run."""
    before = time.process_time()
    run(X)
    return time.process_time() - before


def time_all(n: int, d: int, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each method, interleaved."""
    taken: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, run in methods().items():
            if n <= MOST_LEAVES.get(name, n):
                taken.setdefault(name, []).append(cpu_seconds(run, data(n, d)))
    return {name: float(np.median(values)) for name, values in taken.items()}


def status(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def print_peak(name: str, n: int, d: int) -> None:
    """Run one method in this process and print how far its memory rose."""
    X, run = data(n, d), {**methods(), MANY: ten_particles, NEAR: near_tree}[name]
    run(np.random.default_rng(0).normal(size=(100, d)))  # what compiling takes is not the method's
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    before = status("VmRSS")
    run(X)
    print(status("VmHWM") - before)


def peak_bytes(name: str, n: int, d: int) -> int:
    """Peak memory of one method in a fresh process."""
    command = [sys.executable, "-m", "benchmarks", "--peak", name, "--size", str(n), str(d)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def compile_time() -> list[str]:
    """Run everything once on little data."""
    before = time.process_time()
    for run in methods().values():
        for d in (2, 20):
            run(np.random.default_rng(0).normal(size=(100, d)))
    missing = [name for module, name in PEERS.items() if not importlib.util.find_spec(module)]
    skipped = [f"Not installed, left out: {', '.join(missing)}.", ""] if missing else []
    return [f"Compile time, or loading from cache: {time.process_time() - before:.1f} CPU s.", "", *skipped]


def ratios(seconds: Seconds) -> list[str]:
    """A table of CPU times over that of `BASE`."""
    lines = [f"CPU time over that of {BASE} (its seconds in the first row), median of interleaved repeats.", ""]
    lines += [f"| | {' | '.join(f'n = {n}, d = {d}' for n, d in seconds)} |", "|---" * (len(seconds) + 1) + "|"]
    for name in methods():
        cells = []
        for taken in seconds.values():
            value = taken.get(name)
            cells.append("" if value is None else f"{value:.2f} s" if name == BASE else f"{value / taken[BASE]:.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def growth(seconds: Seconds) -> list[str]:
    """Exponents of CPU time in n between the smallest and each larger n of the same d."""
    first = {d: min(n for n, other in seconds if other == d) for _, d in seconds}
    if max(n for n, _ in seconds) > GROWTH_FROM:
        first = {d: max(n, GROWTH_FROM) for d, n in first.items()}
    pairs = [((first[d], d), (n, d)) for n, d in seconds if n > first[d]]
    if not pairs:
        return []
    lines = ["Growth exponents, log(time ratio)/log(n ratio):", ""]
    lines += ["| | " + " | ".join(f"{a[0]} to {b[0]}, d = {a[1]}" for a, b in pairs) + " |"]
    lines += ["|---" * (len(pairs) + 1) + "|"]
    for name in methods():
        cells = []
        for a, b in pairs:
            both = name in seconds[a] and name in seconds[b]
            ratio = math.log(seconds[b][name] / seconds[a][name]) / math.log(b[0] / a[0]) if both else math.nan
            cells.append(f"{ratio:.2f}" if both else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def memory(n: int, d: int) -> list[str]:
    """A table of peaks."""
    distances = 8 * (n * (n - 1) // 2) / 1e6
    lines = [f"Peak memory at n = {n}, d = {d} (the distances alone: {distances:.0f} MB):", ""]
    lines += ["| method | MB |", "|---|---|"]
    for name in [*methods(), MANY]:
        if n <= MOST_LEAVES.get(name, n):
            lines.append(f"| {name} | {peak_bytes(name, n, d) / 1e6:.0f} |")
    return [*lines, ""]


def near(sizes: tuple[int, ...], d: int, n_exact: int) -> list[str]:
    """Greedy trees of near neighbours: time and memory, and what they lose where the exact tree can be had."""
    lines = [f"By near neighbours, `greedy_tree(X, neighbors={NEIGHBORS})`, d = {d}:", ""]
    lines += ["| n | CPU s | peak MB | log joint | exact | exact CPU s |", "|---|---|---|---|---|---|"]
    for make in (near_tree, ct.greedy_tree):
        make(data(200, d))  # compiled, or loaded from the cache, before the clock starts
    for n in sizes:
        X = data(n, d)
        before = time.process_time()
        tree = near_tree(X)
        taken = time.process_time() - before
        cells = [
            f"{n:,}",
            f"{taken:.1f}",
            f"{peak_bytes(NEAR, n, d) / 1e6:.0f}",
            f"{ct.log_joint(tree, X):.4f}",
            "",
            "",
        ]
        if n <= n_exact:
            before = time.process_time()
            exact = ct.greedy_tree(X)
            taken = time.process_time() - before
            cells[4:] = [f"{ct.log_joint(exact, X):.4f}", f"{taken:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def samplers(size: int, n_particles: int, repeats: int) -> list[str]:
    """One line on tpost beside the paper and beside numpy."""
    X = data(size, size)
    ours = [cpu_seconds(lambda X: ct.sample_posterior(X, method="tpost", n_particles=n_particles), X) for _ in range(9)]
    naive = [cpu_seconds(lambda X: sample_trees(X, n_particles, seed=0), X) for _ in range(repeats)]
    mine, theirs = float(np.median(ours)), float(np.median(naive))
    paper = f"; the paper's MPost2: {PAPER_SECONDS} s, {PAPER_SECONDS / mine:.0f} ×" if size == 64 else ""
    text = (
        f"Sampling, n = d = {size}, M = {n_particles}: tpost {mine:.3f} s; numpy {theirs:.1f} s, {theirs / mine:.0f} ×"
    )
    return [text + paper + ".", ""]


def picture(seconds: Seconds, path: Path) -> None:
    """CPU seconds against n, log–log, at the d with most sizes."""
    import matplotlib.pyplot as plt

    dims = [d for _, d in seconds]
    d = max(set(dims), key=dims.count)
    sizes = sorted(n for n, other in seconds if other == d)
    figure, axes = plt.subplots(figsize=(7.2, 4.8), layout="constrained")
    for name in methods():
        known = [n for n in sizes if name in seconds[n, d]]
        if not known:
            continue
        style = "-" if name.startswith(("greedy", "tpost", "smc1")) else "--"
        axes.loglog(known, [seconds[n, d][name] for n in known], style, marker="o", markersize=4, label=name)
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.minorticks_off()
    axes.set(xlabel="leaves n", ylabel="CPU seconds", title=f"One tree, one thread, d = {d}")
    axes.legend(fontsize=8, frameon=False)
    axes.grid(alpha=0.3)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n up to 1000; print only")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=int, default=20_000, help="leave out cases of more leaves")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with threadpool_limits(1):
        if options.peak:
            print_peak(options.peak, *options.size)
            return
        cases = QUICK if options.quick else [case for case in CASES if case[0] <= options.most]
        lines = ["# Trees at linkage speed", "", "\n".join((__doc__ or "").strip().splitlines()[-3:]), ""]
        lines += compile_time() + samplers(*((32, 10, 1) if options.quick else (64, 100, 1)))
        print("\n".join(lines), flush=True)
        seconds: Seconds = {}
        out = Path(__file__).with_suffix(".md")
        for n, d in cases:
            seconds[n, d] = time_all(n, d, options.repeats if n < 5000 else max(1, options.repeats // 3))
            print((n, d), {name: round(value, 3) for name, value in seconds[n, d].items()}, flush=True)
            if not options.quick:
                # What is done is kept, whatever happens to the rest.
                text = "\n".join(lines + ratios(seconds) + growth(seconds))
                out.write_text(text + "\n![CPU time against n](linkage.svg)\n", encoding="utf-8")
                picture(seconds, out)
        n, d = (1000, 16) if options.quick else (min(10_000, cases[-1][0]), 16)
        sizes = (1000, 5000) if options.quick else (10_000, 100_000)
        text = "\n".join(lines + ratios(seconds) + growth(seconds) + memory(n, d) + near(sizes, d, 10_000))
    print(text)
    if not options.quick:
        out.write_text(text + "\n![CPU time against n](linkage.svg)\n", encoding="utf-8")


if __name__ == "__main__":
    main()
