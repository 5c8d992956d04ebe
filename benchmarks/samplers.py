"""Samplers side by side in one run: CPU seconds, ratios to tpost, log evidence, threads, compile time apart.

python -m benchmarks.samplers            # n = d = 64, M = 100
python -m benchmarks.samplers --quick
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import coaltree as ct
from coaltree.inference.smc.proposals import METHODS

# The paper's table 2 (2.8 GHz core), seconds at n = d = 64, M = 100.
PAPER_SECONDS = {"postpost": 145.0, "mpost1": 10.8, "smc1": 13.9, "mpost2": 6.1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    size, n_particles = (32 if options.quick else options.size), 100
    repeats = 3 if options.quick else 10
    X = ct.sample_data(ct.sample_tree(size, random_state=0), size, random_state=1)

    before = time.perf_counter()
    for method in METHODS:
        ct.sample_posterior(X[:4], method=method, n_particles=2)
    print(f"compile (or load from cache): {time.perf_counter() - before:.1f} s\n")

    cpu: dict[str, list[float]] = {method: [] for method in METHODS}
    evidence: dict[str, list[float]] = {method: [] for method in METHODS}
    for seed in range(repeats):  # interleaved, so that noise of the machine falls on all alike
        for method in METHODS:
            before = time.process_time()
            post = ct.sample_posterior(X, method=method, n_particles=n_particles, random_state=seed)
            cpu[method].append(time.process_time() - before)
            evidence[method].append(post.log_evidence)
    base = np.median(cpu["tpost"])
    print(f"n = d = {size}, M = {n_particles}, median of {repeats}, one thread\n")
    print("| method | CPU s | ratio to tpost | log evidence ± s.e. | paper s | paper / ours |")
    print("|---|---|---|---|---|---|")
    for method in METHODS:
        seconds, values = np.median(cpu[method]), np.array(evidence[method])
        paper = PAPER_SECONDS.get(method) if size == 64 else None
        error = values.std(ddof=1) / np.sqrt(repeats)
        against = f"{paper} | {paper / seconds:.0f}" if paper else " | "
        print(f"| {method} | {seconds:.3f} | {seconds / base:.1f} | {values.mean():.1f} ± {error:.1f} | {against} |")

    print("\nThreads, wall seconds (median), M = 1000:")
    for method in ("tpost", "smc1"):
        wall: dict[int, list[float]] = {1: [], 2: []}
        for seed in range(max(3, repeats // 2)):
            for n_jobs in wall:
                before = time.perf_counter()
                ct.sample_posterior(X, method=method, n_particles=10 * n_particles, n_jobs=n_jobs, random_state=seed)
                wall[n_jobs].append(time.perf_counter() - before)
        one, two = (float(np.median(wall[k])) for k in (1, 2))
        print(f"{method}: 1 thread {one:.3f}, 2 threads {two:.3f}, ratio {one / two:.2f}")


if __name__ == "__main__":
    main()
