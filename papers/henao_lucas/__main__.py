"""`python -m papers.henao_lucas NAME [--quick] [--replicates N] [--data FOLDER] [--out FOLDER] [--jobs N] [--report]`.

NAME is structure, covariance, greedy, usps, mocap, records, exactness or all. Results go into the experiment's own
folder; those of a quick run into `quick/NAME` of the working directory, unless `--out` says otherwise. A run that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from papers.henao_lucas.experiment import Experiment, MissingDataError, perform

NAMES = ("structure", "covariance", "greedy", "usps", "mocap", "records", "exactness")


def load(name: str) -> Experiment:
    """Return the experiment of a folder."""
    experiment = importlib.import_module(f"papers.henao_lucas.{name}.run").EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment


def main(arguments: list[str] | None = None) -> int:
    """Run the experiments that are named; return 0 if all their claims hold, 1 if some do not, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m papers.henao_lucas", description="The paper's experiments.")
    parser.add_argument("name", choices=[*NAMES, "all"])
    parser.add_argument("--quick", action="store_true", help="few replicates and small sizes; all in under ten minutes")
    parser.add_argument("--replicates", type=int, help="replicates (default: the paper's number)")
    parser.add_argument("--data", type=Path, help="folder with usps.npz, osu_run1.npz and synpuf/")
    parser.add_argument("--out", type=Path, help="where results go (default: the experiment's folder)")
    parser.add_argument("--report", action="store_true", help="run nothing: write results from what is done so far")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    if options.replicates is not None and options.replicates < 2:
        parser.error("--replicates must be at least 2.")
    status = 0
    for name in NAMES if options.name == "all" else [options.name]:
        experiment = load(name)
        out = options.out / name if options.out else Path("quick") / name if options.quick else experiment.folder
        try:
            results = perform(experiment, options, out)
        except MissingDataError as error:
            print(f"{name}: {error}", file=sys.stderr)
            if options.name != "all":
                return 2
            continue
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print(f"{name}: stopped. The same command goes on where it was.", file=sys.stderr)
            return 130
        for claim in results["claims"]:
            print(f"{'  ' if claim['holds'] else 'NO'} {name}: {claim['statement']} ({claim['value']:.3g})")
        status |= not all(claim["holds"] for claim in results["claims"])
    return status


if __name__ == "__main__":
    sys.exit(main())
