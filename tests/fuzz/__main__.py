"""Fuzz a reader: `python -m tests.fuzz newick --inputs 1000000 --seed 0`.

Every input either gives a valid result or one of the reader's own errors; anything else (another exception, a warning,
more memory or time than the limits) is printed with its number and kept in a file, and the command fails.
`--first` begins at a later input, so that a long run can be made in pieces; `--log` appends the outcome as a line.
"""

import argparse
import contextlib
import datetime
import json
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

from coaltree import __version__
from tests.fuzz.readers import READERS, Reader, seeded

MEMORY = 4 << 30  # bytes of address space for the whole process
SECONDS = 10  # of processor time for one input


class TooLong(BaseException):
    """An input took longer than the limit; not an Exception, so that no reader can swallow it."""


def _stop(*_: object) -> None:
    raise TooLong


def attempt(reader: Reader, data: bytes) -> str | None:
    """Read one input: "accepted", or "refused" with one of our errors; a traceback of anything else."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        reader.read(data)
    except reader.errors as error:
        return "refused" if str(error) else f"{type(error).__name__} without a message"
    except (Exception, TooLong):
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return "accepted"


@contextlib.contextmanager
def limits(memory: int | None = MEMORY):
    """Bound the memory of the process, make warnings errors, and stop what takes too long."""
    before = signal.signal(signal.SIGVTALRM, _stop)
    old = resource.getrlimit(resource.RLIMIT_AS)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, old[1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)
        signal.signal(signal.SIGVTALRM, before)


def fuzz(name: str, first: int, n_inputs: int, seed: int, keep: Path | None = None, memory: int | None = None) -> dict:
    """Try inputs first … first + n_inputs − 1; return counts and the traceback of every failure, by number."""
    reader = READERS[name]
    corpus = reader.corpus()
    counts = {"accepted": 0, "refused": 0}
    failures: dict[int, str] = {}
    with limits(memory):
        outcomes = [attempt(reader, data) for data in corpus]
        if "accepted" not in outcomes or not set(outcomes) <= set(counts):
            raise RuntimeError(f"The unchanged files are not read: {outcomes}")
        for number in range(first, first + n_inputs):
            data = reader.make(seeded(name, seed, number), corpus)
            outcome = attempt(reader, data)
            if outcome in counts:
                counts[outcome] += 1
                continue
            failures[number] = outcome
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{seed}-{number}").write_bytes(data)
            if len(failures) >= 20:
                break
    return {"reader": name, "inputs": sum(counts.values()) + len(failures), **counts, "failures": failures}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="folder for inputs that fail")
    parser.add_argument("--log", type=Path, help="file to which the outcome is appended as a line of JSON")
    given = parser.parse_args()
    began = time.perf_counter()
    result = fuzz(given.reader, given.first, given.inputs, given.seed, given.keep, MEMORY)
    for number, trace in result["failures"].items():
        print(f"input {number}:\n{trace}", file=sys.stderr)
    result |= {
        "failures": len(result["failures"]),
        "seed": given.seed,
        "first": given.first,
        "seconds": round(time.perf_counter() - began),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "version": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    line = json.dumps(result)
    print(line)
    if given.log:
        with given.log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    return min(result["failures"], 1)


if __name__ == "__main__":
    sys.exit(main())
