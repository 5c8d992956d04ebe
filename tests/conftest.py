"""One BLAS thread: the matrices of the tests are small, and threads waiting for each other cost more than they save."""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
