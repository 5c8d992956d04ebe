"""Sizes in the source beyond which nothing is predicted in another way, each with the reason."""

from tests.test_architecture import STAGES

# Whole parts of the source.
PARTS = dict.fromkeys(STAGES[STAGES.index("estimators") + 1 :], "a later stage than the estimators that predict") | {
    "records": "makes tables before a fit and describes what the regression predicts",
    "regression": "an outcome has the probabilities p and 1 − p, whatever p was learned",
    "inference.smc": "samples trees for the evidence; no rows are predicted from them",
    "model.gig": "terms and cells of approximations, tested to their digits in tests/model",
    "cells": "dates in which the day may come first",
    "storage": "bytes read at a time, and written as they are read",
}
_EFFORT = "how long chains run and how many draws are kept; draws are averaged, whatever their number"
_NOTES = "notes and messages"
_PROPOSAL = "what a move proposes, corrected by its acceptance; fits of all small sizes are tested"
_COMPARED = "which forms of covariance are compared; each is tested"
_SUMMARY = "describes trees that were drawn"
_LEFT_OUT = "how many rows are left out and over how many draws; each of them is tested"
_NUMERICS = "terms of an approximation, the same for tables of all sizes"
_SEARCH = "effort of the search for near rows when chains start; fits on both sides of BRUTE_MOST are tested"
NAMES = {
    "annotated.MOST_GENES": _NOTES,
    "reading.MOST_NAMED": _NOTES,
    "sizes.ROWS_FOR_EVIDENCE": "whether there is a log evidence",
    "estimators.distances._CORNERS": _NOTES,
    "sizes.COLUMNS_CHECKED": _NOTES,
    "sizes.ROWS_CHECKED": _NOTES,
    "estimators.inputs.FEWEST_FOR_TIES": _NOTES,
    "estimators.regression.len(classes) > 5": _NOTES,
    "inference.effort.MOST_MOVES": _EFFORT,
    "inference.effort.FEWEST_ITERATIONS": _EFFORT,
    "inference.effort.MOST_ITERATIONS": _EFFORT,
    "inference.effort.N_DRAWS": _EFFORT,
    "inference.effort.FEWER_DRAWS": _EFFORT,
    "sizes.ROWS_WITH_ALL_DRAWS": _EFFORT,
    "inference.effort.N_CHAINS": _EFFORT,
    "inference.effort.MOST_CHECKED_MOVES": _EFFORT,
    "inference.effort.DROPPED": _EFFORT,
    "inference.effort.GREEDY_ITERATIONS": _EFFORT,
    "inference.effort.GREEDY_WARMUP": _EFFORT,
    "sizes.FEW_LEVELS": _COMPARED,
    "inference.effort.d >= 64": "which sampler finds the evidence",
    "inference.effort.d >= 16": "which sampler finds the evidence",
    "inference.effort.n * d >= 2048": "which sampler finds the evidence",
    "inference.greedy.truncated.ROOM": "room for pairs that are listed again when it is full",
    "inference.learning.table.N_TURNS": _PROPOSAL,
    "inference.learning.chain.N_SCALES": _PROPOSAL,
    "inference.learning.latent.N_AGES": _PROPOSAL,
    "inference.learning.latent.N_FIRST": _EFFORT,
    "estimators.learn.FEWEST_ITERATIONS": _EFFORT,
    "estimators.learn.FEWEST_OF_ONE_CHAIN": _EFFORT,
    "sizes.COLUMNS_FOR_FACTORS": _COMPARED,
    "sizes.LATENT_FOR_FULL": _COMPARED,
    "sizes.ROWS_COUNTED": "from how many rows the number of effective columns is estimated",
    "inference.learning.working.MOST_ROUNDS": "how often the number of effective columns is estimated anew",
    "inference.moves.edge_density.N_SIDE": _PROPOSAL,
    "inference.moves.edge_density.N_KNOTS": _PROPOSAL,
    "inference.moves.local.PAIRS": "a position among counts",
    "inference.moves.local.PAIRS_ACCEPTED": "a position among counts",
    "inference.moves.local.N_COUNTS": "a position among counts",
    "inference.moves.search.N_ANCHORS": _PROPOSAL,
    "inference.moves.search.N_TRIES": _PROPOSAL,
    "sizes.FREE_COLUMNS": "how warm-up is heated",
    "inference.moves.walk.FEWEST_HEATED": "how warm-up is heated",
    "inference.moves.walk.ENOUGH": _EFFORT,
    "inference.neighbors.TREES": _SEARCH,
    "inference.neighbors.SPARE": _SEARCH,
    "inference.neighbors.ROUNDS": _SEARCH,
    "inference.neighbors.BLOCK_BYTES": _SEARCH,
    "inference.neighbors.PROBES": _SEARCH,
    "inference.neighbors.TREE_MOST": _SEARCH,
    "inference.learning.levels.MOST_STEPS": "where a slice that shrinks ends, in a chain",
    "model.kinds.circular.N_TURNS": "draws of a chain",
    "model.truncated._PER_UNIT": _PROPOSAL,
    "places.edge_mass.N_SUMS": _NUMERICS,
    "places.gaps.N_REPEATS": "draws of levels of the fitted table; counted draws sum to 1",
    "places.rows.N_TRIES": "draws of coordinates; counted draws of levels sum to 1",
    "posterior.left_out.FEWEST_DRAWS": "with fewer draws there is an error",
    "sizes.LATENT_BYTES": _EFFORT,
    "sizes.DRAWS_LEFT_OUT": _LEFT_OUT,
    "sizes.MIXED_DRAWS_LEFT_OUT": _LEFT_OUT,
    "model.kinds.numbers.MOST_KNOTS": "knots of a column's own map, whose slope is part of the density everywhere",
    "model.kinds.levels.MOST_SHOWN": _NOTES,
    "model.gp.MAX_PRIOR_DRAWS": "then there is an error",
    "model.guess.MOST_NAMED": _NOTES,
    "model.guess.FEWEST_FOR_SKEW": "whether a column is transformed; both are tested in tests/model",
    "posterior.clades._KEY_SEED": "a seed",
    "posterior.clades._AT_ONCE": _SUMMARY,
    "posterior.coclustering.MOST_PAIRED": _SUMMARY,
    "posterior.coclustering.N_SAMPLED": _SUMMARY,
    "posterior.convergence.TELLING": _SUMMARY,
    "posterior.convergence.MOST_CLADES": _SUMMARY,
    "posterior.diagnostics.FEWEST": _SUMMARY,
    "posterior.hierarchy.MOST_TOGETHER": _SUMMARY,
    "posterior.overlap.CELLS": _SUMMARY,
    "posterior.overlap._LARGE": _SUMMARY,
    "posterior.partition.MOST_CLUSTERS": _SUMMARY,
    "posterior.partition.MOST_LEAVES": _SUMMARY,
    "posterior.partition.MOST_COMPARED": _SUMMARY,
    "posterior.partition.MOST_IN_CLOUD": _SUMMARY,
    "posterior.partition.N_CLOUDS": _SUMMARY,
    "posterior.partition._BLOCK": _SUMMARY,
    "posterior.point.FEW": _SUMMARY,
    "posterior.point.SEARCHES": _SUMMARY,
    "posterior.splits.MOST_DRAWS": _SUMMARY,
}


def reason_for(name):
    """Why a size cannot matter, by its own name or by its part of the source; None if nobody said."""
    parts = (reason for part, reason in PARTS.items() if name.startswith(f"{part}."))
    return NAMES.get(name) or next(parts, None)
