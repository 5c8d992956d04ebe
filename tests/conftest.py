"""One BLAS thread: the matrices of the tests are small, and threads waiting for each other cost more than they save."""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def pytest_collection_modifyitems(items):
    """Put posteriors first: two processes then begin with tests of different kernels, and each compiles but once."""
    items.sort(key=lambda item: "posterior" not in item.path.parts)
