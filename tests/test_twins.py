"""Which kernels have a plain twin in tests/reference, and which do not.

A kernel is named by its file and itself, such as "loop.reweigh". Those without a twin are tested in other ways: against
enumeration, quadrature or brute force within a test, or by invariance. The list may shrink: a new kernel comes with a
twin, and a kernel that gets one moves to TWINS.
"""

import ast
import importlib
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SOURCE, REFERENCE = REPOSITORY / "src" / "coaltree", REPOSITORY / "tests" / "reference"

# Kernel: the twin that a test compares it with, directly or through the function that calls it.
TWINS = {
    "build.agglomerate": "greedy.plain_scan",
    "truncated.agglomerate_truncated": "greedy.plain_scan",
    "proposals.advance_local": "weights.log_increments",
    "tpost.advance_tpost": "weights.log_increments",
    "race.advance_race": "race.plain_race",
    "gig._log_integral": "gig.log_integral",
    "gig._log_bessel_k": "gig.log_bessel_k",
    "missing._solve_rows": "missing.impute_rows",
    "whole_tree.regraft": "regraft.Proposal",
    "host.measure_clades": "places.messages",
    "search.find_places": "places.log_densities",
    "search.leave_out": "places.log_densities",
    "clades._number": "posteriors.clades_of",
    "clades._sum_weights": "posteriors.clade_table",
    "clades._sum_times": "posteriors.clade_table",
    "clades._quantiles": "posteriors.quantile",
    "overlap._compare": "overlap.summary",
    "metrics._count_pure": "scores.subtree_score",
    "metrics._ari_by_merge": "scores.ari_curve",
    "metrics._spans": "scores.robinson_foulds",
    "point._choose_splits": "point.best_trees",
    "point._assemble": "point.best_trees",
    "penalised.descend": "regression.fit_coefficients",
    "prior._assemble": "probit.log_prior",
    "normal.residuals": "families.values_and_slopes_of_measurements",
    "poisson.count_slopes": "families.values_and_slopes_of_counts",
    "poisson.count_values_and_slopes": "families.values_and_slopes_of_counts",
    "scores.auroc_of_resamples": "regression.auroc",
}
# By file.
WITHOUT_TWIN = {
    "clades": "_in_trees shortest_intervals",
    "coclustering": "_draw _mean_ancestor_times _mean_pair_times _share_of_pairs _sum_over_trees cut_labels restrict",
    "coefficients": "draw_latent",
    "consensus": "_nest _raise_times",
    "diffusion": "_pack_differences _pack_products _sum_contrasts",
    "forest": "_vote",
    "gig": "_mean_variance _sample",
    "hierarchy": "_heads _probability ward",
    "host": "count_lineages draw_clock",
    "insertion": "copy_growing insert_row move",
    "levels": "_add_down _number shift_merges",
    "lineages": "put_in_order",
    "links": "slopes values_and_slopes",
    "local": "regraft_nodes",
    "locate": "gather",
    "loop": "choose_copies copy_particles reweigh systematic_counts",
    "messages": "pass_down pass_messages_up",
    "mutable_tree": "recompute_tree upwards",
    "neighbors": "connect_neighbors follow_graph group_copies improve_neighbors measure_neighbors pair_leaves scan "
    "select spread_to_copies",
    "pairs": "regraft_pairs regraft_two",
    "partition": "_mean_silhouette _share_nearest _silhouettes",
    "point": "_sizes _sort_merges",
    "predict": "share_labels",
    "refine": "climb_all",
    "regraft": "log_evidences survey",
    "row_noise": "slice_noise",
    "rows": "draw_cells",
    "shifted": "regraft_with_rows",
    "tables": "_means",
    "truncated": "draw_between largest_probabilities log_interval_probability log_levels",
    "walk": "draw_order recompute rescale slice_times",
    "whole_tree": "rescale_tree slice_node_times",
    "widths": "sweep sweep_widths",
}
WITHOUT = {f"{file}.{name}" for file, names in WITHOUT_TWIN.items() for name in names.split()}
MOST_WITHOUT = 78  # may only become smaller


def is_kernel(node):
    return isinstance(node, ast.FunctionDef) and any(
        (each.func if isinstance(each, ast.Call) else each).id == "kernel"
        for each in node.decorator_list
        if isinstance(each.func if isinstance(each, ast.Call) else each, ast.Name)
    )


def find_kernels():
    found = set()
    for file in SOURCE.rglob("*.py"):
        stem = file.parent.name if file.stem == "__init__" else file.stem
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found |= {f"{stem}.{node.name}" for node in ast.walk(tree) if is_kernel(node)}
    return found


def test_every_kernel_is_on_one_of_the_lists():
    kernels = find_kernels()
    assert sorted(kernels - set(TWINS) - WITHOUT) == []  # a new kernel: write its twin and name it in TWINS
    assert sorted((set(TWINS) | WITHOUT) - kernels) == []  # no such kernels: take them off the lists
    assert not set(TWINS) & WITHOUT


def test_the_list_of_those_without_a_twin_shrinks():
    assert len(WITHOUT) <= MOST_WITHOUT


def test_twins_exist_and_are_used():
    tests = [file.read_text(encoding="utf-8") for file in (REPOSITORY / "tests").rglob("test_*.py")]
    for twin in set(TWINS.values()):
        module, name = twin.split(".")
        assert hasattr(importlib.import_module(f"tests.reference.{module}"), name), twin
        users = [text for text in tests if re.search(rf"tests\.reference(\.| import ){module}\b", text)]
        assert any(re.search(rf"\b{name}\b", text) for text in users), twin


def test_kernels_are_found():
    code = "@kernel\ndef a(): ...\n@kernel(parallel=True)\ndef b(): ...\n@inline\ndef c(): ...\n"
    assert [node.name for node in ast.parse(code).body if is_kernel(node)] == ["a", "b"]
