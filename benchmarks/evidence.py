"""Log evidence of every sampler over n and d: the ground for what `method="auto"` chooses.

On the same data a higher mean log-evidence estimate is better (it is a lower bound in expectation), so samplers are
compared by their difference to tpost, averaged over data sets and seeds.

    python -m benchmarks.evidence --out benchmarks/evidence.md     # about half an hour
    python -m benchmarks.evidence --quick
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import coaltree as ct
from coaltree.inference.effort import choose_merging
from coaltree.inference.smc.proposals import METHODS

# Left out above this n: minutes a cell, and never ahead below it.
SMALL, SLOW = 32, ("postpost", "mpost1")


def log_evidences(n: int, d: int, method: str, n_particles: int, n_data: int, n_seeds: int) -> tuple[np.ndarray, float]:
    """Estimates (n_data, n_seeds) and CPU seconds per run."""
    out = np.empty((n_data, n_seeds))
    spent = 0.0
    for k in range(n_data):
        X = ct.sample_data(ct.sample_tree(n, random_state=1000 + k), d, random_state=2000 + k)
        for seed in range(n_seeds):
            before = time.process_time()
            out[k, seed] = ct.sample_posterior(
                X, method=method, n_particles=n_particles, random_state=seed
            ).log_evidence
            spent += time.process_time() - before
    return out, spent / out.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", help="write the table to this Markdown file")
    parser.add_argument("--particles", type=int, default=100)
    options = parser.parse_args()
    sizes = (8, 32) if options.quick else (8, 16, 32, 64, 128)
    dimensions = (2, 16) if options.quick else (1, 2, 4, 8, 16, 32, 64, 128)
    n_data, n_seeds = (2, 3) if options.quick else (4, 4)
    for method in METHODS:
        ct.sample_posterior(np.eye(3), method=method, n_particles=2)
    others = [m for m in METHODS if m != "tpost"]
    lines = [
        f"# Log evidence against tpost, M = {options.particles}, simulated data",
        "",
        f"Mean difference ± standard error over {n_data} data sets × {n_seeds} seeds; CPU seconds per run in brackets.",
        "Positive: better than tpost. Made by `python -m benchmarks.evidence`.",
        "",
        "| n | d | tpost | " + " | ".join(others) + " | auto |",
        "|---" * (len(others) + 4) + "|",
    ]
    print("\n".join(lines), flush=True)
    for n in sizes:
        for d in dimensions:
            base, seconds = log_evidences(n, d, "tpost", options.particles, n_data, n_seeds)
            cells = [f"{base.mean():.1f} [{seconds:.3f}]"]
            for method in others:
                if n > SMALL and method in SLOW:
                    cells.append("")
                    continue
                value, seconds = log_evidences(n, d, method, options.particles, n_data, n_seeds)
                difference = value.mean(axis=1) - base.mean(axis=1)
                spread = np.sqrt((value.var(axis=1, ddof=1) + base.var(axis=1, ddof=1)) / n_seeds)
                error = np.sqrt((spread**2).sum()) / n_data
                cells.append(f"{difference.mean():+.1f} ± {error:.1f} [{seconds:.3f}]")
            lines.append(f"| {n} | {d} | " + " | ".join(cells) + f" | {choose_merging('auto', n, d)} |")
            print(lines[-1], flush=True)
            if options.out:
                with open(options.out, "w", encoding="utf-8") as file:
                    file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
