"""Seeds for statistical tests: COALTREE_SEED shifts them all, so that a sweep tries fresh randomness."""

import os

OFFSET = int(os.environ.get("COALTREE_SEED", "0")) * 100_003


def seed(number: int) -> int:
    return OFFSET + number
