"""`python -m benchmarks`: trees at linkage speed (see `benchmarks.linkage`)."""

from benchmarks.linkage import main

main()
