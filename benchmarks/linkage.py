"""Trees at linkage speed: CPU time of greedy trees and of one particle beside linkage, as ratios; growth; memory.

python -m benchmarks.linkage             # writes benchmarks/linkage.md
python -m benchmarks.linkage --quick     # n up to 1000, prints only

Every method runs in turn on the same data, again and again, on one thread, and the medians are divided. Compile time
is reported apart. Peak memory is that of a fresh process per method, less that of one which only loads the data.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import resource
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

BASE = "scipy average"
CASES = [(2500, 4), (2500, 16), (2500, 256), (10_000, 16), (10_000, 256)]
QUICK = [(500, 16), (1000, 4), (1000, 16), (1000, 256)]
# Particles are timed up to here: they are copied once more than distances are.
MOST_LEAVES_OF_PARTICLES = 2500


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
    for rule in ("mean", "mode", "peak"):
        found[f"greedy {rule}"] = lambda X, rule=rule: ct.greedy_tree(X, rule=rule)
    for method in ("tpost", "smc1"):
        found[f"{method}, one particle"] = lambda X, method=method: ct.sample_posterior(X, method=method, n_particles=1)
    return found


def cpu_seconds(run: Callable[[Any], object], X: Any) -> float:
    """CPU time of one run."""
    before = time.process_time()
    run(X)
    return time.process_time() - before


def time_all(n: int, d: int, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each method, interleaved."""
    X = data(n, d)
    taken: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, run in methods().items():
            if not name.endswith("particle") or n <= MOST_LEAVES_OF_PARTICLES:
                taken.setdefault(name, []).append(cpu_seconds(run, X))
    return {name: float(np.median(values)) for name, values in taken.items()}


def peak_bytes(name: str, n: int, d: int) -> int:
    """Peak memory of a fresh process that runs one method; of loading the data alone for the name "nothing"."""
    command = [sys.executable, "-m", "benchmarks.linkage", "--peak", name, "--size", str(n), str(d)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def report(cases: list[tuple[int, int]], repeats: int) -> str:
    """Tables in Markdown."""
    lines = ["# Trees at linkage speed", "", (__doc__ or "").split("\n\n")[-1].strip(), ""]
    before = time.process_time()
    for run in methods().values():
        for d in (2, 20):
            run(np.random.default_rng(0).normal(size=(100, d)))
    lines += [f"Compile time, or loading from cache: {time.process_time() - before:.1f} CPU s.", ""]
    seconds = {case: time_all(*case, repeats if case[0] < 5000 else max(1, repeats // 3)) for case in cases}
    header = " | ".join(f"n = {n}, d = {d}" for n, d in cases)
    lines += [f"CPU time over that of {BASE} (its seconds in the first row), median of interleaved repeats.", ""]
    lines += [f"| | {header} |", "|---" * (len(cases) + 1) + "|"]
    for name in methods():
        cells = []
        for case in cases:
            value = seconds[case].get(name)
            base = seconds[case][BASE]
            cells.append("" if value is None else f"{value:.2f} s" if name == BASE else f"{value / base:.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")

    pairs = [(a, b) for a in cases for b in cases if a[1] == b[1] and a[0] < b[0]]
    if pairs:
        lines += ["", "Growth exponents, log(time ratio)/log(n ratio):", ""]
        lines += ["| | " + " | ".join(f"{a[0]} to {b[0]}, d = {a[1]}" for a, b in pairs) + " |"]
        lines += ["|---" * (len(pairs) + 1) + "|"]
        for name in methods():
            cells = []
            for a, b in pairs:
                both = name in seconds[a] and name in seconds[b]
                ratio = math.log(seconds[b][name] / seconds[a][name]) / math.log(b[0] / a[0]) if both else math.nan
                cells.append(f"{ratio:.2f}" if both else "")
            lines.append(f"| {name} | {' | '.join(cells)} |")

    n, d = cases[-1]
    distances = 8 * (n * (n - 1) // 2) / 1e6
    lines += [
        "",
        f"Peak memory at n = {n}, d = {d} beyond loading the data (the distances alone: {distances:.0f} MB):",
        "",
    ]
    lines += ["| method | MB |", "|---|---|"]
    nothing = peak_bytes("nothing", n, d)
    for name in seconds[n, d]:
        lines.append(f"| {name} | {(peak_bytes(name, n, d) - nothing) / 1e6:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n up to 1000; print only")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=int, default=10_000, help="leave out cases of more leaves")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with threadpool_limits(1):
        if options.peak:
            X = data(*options.size)
            small = np.random.default_rng(0).normal(size=(100, options.size[1]))
            for name, run in methods().items():
                if options.peak == name:
                    run(small)  # what compiling takes is not the method's
                    run(X)
            print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            return
        cases = QUICK if options.quick else [case for case in CASES if case[0] <= options.most]
        text = report(cases, options.repeats)
    print(text)
    if not options.quick:
        Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
