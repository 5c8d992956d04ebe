"""Sizes by which the work on a table is chosen: all numbers of rows, columns and draws from which it goes another way.

Probabilities of new rows are tested on both sides of each (`tests/acceptance/test_probabilities.py`).
"""

from __future__ import annotations

# ---- chains

# Near rows of every row: candidates of the greedy start, and where searches for an edge begin.
NEAR_ROWS = 12
# Up to this many rows, near rows are found by sorting all distances when a tree is drawn afresh.
ROWS_SORTED = 64
# Up to this many rows the start is the greedy tree over all pairs, beyond that over near ones.
ROWS_FOR_ALL_PAIRS = 1500
# With more columns than this, a warm-up of some length begins with the likelihood raised to a power, as if there were
# only this many.
FREE_COLUMNS = 64
# Rows from which the number of effective columns is estimated at most.
ROWS_COUNTED = 1000
# With more rows than this, latent coordinates are drawn once per iteration.
ROWS_DRAWN_IN_TURNS = 5000
# Rows whose nearest others tell how much noise to begin with.
ROWS_PROBED = 300
# Bytes for latent coordinates of all draws; with large tables not every draw has them.
LATENT_BYTES = 300_000_000
# Trees kept are fewer, to save memory, of more rows than this.
ROWS_WITH_ALL_DRAWS = 50_000

# ---- which model and which sampler

# A full Φ is learned by default from this many rows, with this many per column, if every column has more distinct
# values than this: from columns of few levels it learns which levels occur together, and classes are lost.
FULL_ROWS, FULL_ROWS_PER_COLUMN, FEW_LEVELS = 50, 4, 10
# A full matrix needs this many rows per column to be worth trying; more columns than this are too many for factors.
ROWS_PER_COLUMN, COLUMNS_FOR_FACTORS = 1.5, 400
# An iteration takes time n D² where coordinates are latent and the matrix is full.
LATENT_FOR_FULL = 60
# Up to this many rows with this many columns "auto" uses insertion. With more columns, on real data, later rows are too
# improbable under trees over earlier ones, and the race has the higher evidence at equal time.
INSERTED = ((150, 64), (500, 16))
# Beyond this many rows there is no log evidence: sequential Monte Carlo takes time n² or more.
ROWS_FOR_EVIDENCE = 2000

# ---- notes on a table

# Most columns in which collinear ones and copies are looked for, and most rows in which far ones are.
COLUMNS_CHECKED, ROWS_CHECKED = 500, 5000

# ---- places: new rows and rows that are left out

# New rows are located this many at a time.
POINTS_AT_ONCE = 4096
# Labels are counted for all nodes at once, in blocks of labels whose table has at most this many entries.
LABEL_ENTRIES = 4_000_000
# Draws by which new rows of a mixed table are predicted, and draws of a row's coordinates over all of them together.
DRAWS_OF_MIXED = 50
COORDINATES_DRAWN = 200
# At most this many rows are left out and this many draws used: enough to tell models apart. Rows of mixed tables take
# longer, and so do rows whose own noise is summed out: then half as many draws.
ROWS_LEFT_OUT, DRAWS_LEFT_OUT = 400, 100
MIXED_LEFT_OUT, MIXED_DRAWS_LEFT_OUT = 100, 60
