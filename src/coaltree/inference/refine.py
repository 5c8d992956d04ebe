from __future__ import annotations
import math
import numpy as np
from coaltree._compile import inline, kernel
from coaltree.inference import attachment
from coaltree.inference.attachment import log_density
from coaltree.inference.chain import *
from coaltree.inference.chain import look_above, look_below, edge_between, set_aside, put_back, detach, attach, other_child, Chain
from coaltree.inference.moves import make_survey, visit_edges
from coaltree.randomness import uniform

@kernel
def climb(state, n_moves, stream):
    d = float(state.mean.shape[1])
    survey = make_survey(state.variance.size)
    moved = 0
    for _ in range(n_moves):
        cut = int(uniform(stream) * (state.variance.size - 1))
        cut += cut >= state.children[-1, 0]
        home, home_time = other_child(state, cut), state.time[state.parent[cut]]
        detach(state, cut)
        n_edges = visit_edges(state, cut, 1e-6, survey)
        best = survey.node[0]
        for k in range(n_edges):
            if survey.log_mass[survey.node[k]] > survey.log_mass[best]:
                best = survey.node[k]
        e = edge_between(state, home, home, cut)
        old = log_density(e, state.others, d, home_time)
        if survey.log_mass[best] > old:
            moved += best != home
            state.log_joint[0] += survey.log_mass[best] - old
            attach(state, cut, best, survey.peak[best])
        else:
            attach(state, cut, home, home_time)
    return moved
@inline
def peak_time(state, merge):
    d = float(state.mean.shape[1])
    cut, sibling = state.children[merge]
    edge = edge_between(state, sibling, merge, cut)
    if edge.low < edge.high:
        now = state.time[merge]
        set_aside(state, now)
        time, _ = attachment.find_peak(edge, state.others, d, 1e-8)
        change = log_density(edge, state.others, d, time) - log_density(edge, state.others, d, now)
        if change > 0:
            state.log_joint[0] += change
            state.time[merge] = time
            put_back(state, time)
@kernel
def climb_times(state):
    origin = state.parent.size - 1
    node, came_from = state.children[origin, 0], origin
    while node != origin:
        left, right = state.children[node]
        if left < 0:
            node, came_from = came_from, node
            continue
        if came_from == state.parent[node]:
            look_above(state, node)
            node, came_from = left, node
        elif came_from == left:
            node, came_from = right, node
        else:
            peak_time(state, node)
            look_below(state, node)
            node, came_from = state.parent[node], node
