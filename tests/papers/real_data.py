"""Where the real data are, if they are: COALTREE_DATA, or the folder shared/data beside the repository."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def real_data(name):
    """Return the folder that holds a file, or skip the test and say what is missing."""
    for folder in (os.environ.get("COALTREE_DATA"), ROOT.parent / "shared" / "data"):
        if folder and (Path(folder) / name).exists():
            return Path(folder)
    pytest.skip(f"{name} is not at hand: set COALTREE_DATA to the folder that holds it.")
