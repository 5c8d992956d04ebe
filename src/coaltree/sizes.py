"""Sizes by which the work on a table is chosen: all numbers of rows, columns and draws from which it goes another way.

Probabilities of new rows are tested on both sides of each (`tests/acceptance/test_probabilities.py`).
"""

from __future__ import annotations

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
