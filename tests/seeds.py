"""Seeds for statistical tests: COALTREE_SEED shifts them all, so that a sweep tries fresh randomness.

`python -m tests.seeds --seeds 100` runs the statistical tests over many seeds and counts false alarms.
"""

import os
import sys

OFFSET = int(os.environ.get("COALTREE_SEED", "0")) * 100_003


def seed(number: int) -> int:
    return OFFSET + number


if __name__ == "__main__":
    from tests.sweep import main

    sys.exit(main())
