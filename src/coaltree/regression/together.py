r"""Moves of a wide chain that change coefficients with what holds them: an outcome's place, a feature's width.

Both replace the likelihood by l̂, the pilot's expansion in the frame's coordinates (curvature w_j G, intercepts apart),
draw from the model with l̂ exactly, and are accepted with probability min(1, exp[(l − l̂)(new) − (l − l̂)(old)]), as in
`leaves` and `widths`, of which they are the counterparts for many features.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.randomness import Stream, make_streams
from coaltree.regression.coefficients import Point, evaluate
from coaltree.regression.frame import Frame, WidePilot
from coaltree.regression.leaves import N_PLACES, empty_places, regrafted, survey
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.prior import Hyper
from coaltree.regression.widths import slice_width

# Features whose widths are drawn in one go: their errors of l̂ add up.
N_TOGETHER = 16


def _sheared(pilot: WidePilot, theta: Floats) -> Floats:
    """Intercepts μ′ = μ + cβ, (P,)."""
    return np.asarray(theta[:, 0] + np.einsum("jk,jk->j", pilot.shear, theta[:, 1:]))


def move_place(
    hyper: Hyper, point: Point, j: int, outcome: Likelihood, frame: Frame, rng: np.random.Generator
) -> tuple[Hyper, Point, bool]:
    """Hang outcome j elsewhere, its coefficients following.

    In the coordinates γ = (β_j/λ) U everything about outcome j is diagonal under l̂: its likelihood has precision w_j d,
    a place that says N(m, vσ² I) adds 1/vσ², and the common level 1/(Pτ)². So the weights of R places cost O(RK), and
    γ = mean + precision^(−½) q keeps q.
    """
    now, pilot, theta = hyper.unknowns, frame.pilot, point.theta
    assert now is not None
    assert hyper.widths is not None
    scaled = np.ascontiguousarray(theta[:, 1:] / hyper.widths)
    n_outcomes, n_features = scaled.shape
    places = empty_places(n_features)
    survey(now.tree.children, now.tree.node_times(), j, scaled, now.leaf_noise, make_streams(rng, 1)[0], places)
    level = (n_outcomes * hyper.spread) ** -2.0
    inverse = 1.0 / (places.variance * float(now.covariance.values["variance"]))[:, None]
    likelihood_precision = pilot.weights[j] * frame.basis.spectrum
    rest = scaled.sum(axis=0) - scaled[j]
    turned = frame.basis.rotate(np.vstack([places.mean, rest, scaled[j], pilot.linear[j, 1:] * hyper.widths]))
    means, rest, here, linear = turned[:-3], turned[-3], turned[-2], turned[-1]
    precision = likelihood_precision + inverse + level
    pull = linear - level * rest + inverse * means
    log_z = 0.5 * (pull**2 / precision - np.log(precision / inverse) - inverse * means**2).sum(axis=1)
    weights = np.exp(log_z - log_z.max())
    chosen = int(rng.choice(N_PLACES + 1, p=weights / weights.sum()))
    log_u = -rng.exponential()
    if chosen == 0:
        return hyper, point, False
    centre = pull / precision
    there = centre[chosen] + (here - centre[0]) * np.sqrt(precision[0] / precision[chosen])
    new = np.empty((1, n_features + 1))
    new[0, 1:] = frame.basis.rotate_back(there[None])[0] * hyper.widths
    new[0, 0] = _sheared(pilot, theta)[j] - pilot.shear[j] @ new[0, 1:]
    values, gradient = outcome.values_and_gradient(new)
    gain = float(values[0] - point.values[j]) + 0.5 * frame.intercept * float(theta[j, 0] ** 2 - new[0, 0] ** 2)
    for sign, gamma in ((1.0, here), (-1.0, there)):
        gain += sign * float(gamma @ (linear - 0.5 * likelihood_precision * gamma))
    if not log_u < gain:
        return hyper, point, False
    moved = [part.copy() for part in point]
    moved[0][j], moved[1][j], moved[2][j] = new[0], values[0], gradient[0]
    tree = regrafted(now.tree, j, int(places.edge[chosen]), float(places.time[chosen]))
    return hyper._replace(unknowns=now._replace(tree=tree)), Point(*moved), True


@kernel
def sweep_widths(
    order: Ints,
    df: float,
    inverse: Floats,
    weights: Floats,
    gram: Floats,
    stream: Stream,
    state_beta: Floats,
    state_gradient: Floats,
    out: Floats,
) -> None:
    """Slice u_k for k in `order`, (β_·k, λ_k) → e^u (β_·k, λ_k); β (P, K) and ∇l̂ (P, K) follow, `out` is u."""
    n_outcomes, d = state_beta.shape
    for k in order:
        slope = bend = 0.0
        for j in range(n_outcomes):
            slope += state_beta[j, k] * state_gradient[j, k]
            bend += state_beta[j, k] ** 2 * weights[j] * gram[k, k]
        u = slice_width(-df, df * inverse[k], slope, bend, stream)
        out[k] = u
        for j in range(n_outcomes):
            change = state_beta[j, k] * math.expm1(u)
            state_beta[j, k] += change
            for m in range(d):
                state_gradient[j, m] -= weights[j] * gram[m, k] * change


def move_effects(
    hyper: Hyper,
    point: Point,
    likelihood: Likelihood,
    pilot: WidePilot,
    grams: list[tuple[slice, Floats]],
    intercept: float,
    rng: np.random.Generator,
) -> tuple[Hyper, Point, bool]:
    r"""Draw the widths of a few features with all their effects: (β_·k, λ_k) → e^u (β_·k, λ_k), μ′ held.

    The prior of the effects and their Jacobian cancel; along u there is left −νu − ½νe^(−2u)/λ_k² + l̂.
    """
    assert hyper.widths is not None
    part, gram = grams[int(rng.integers(len(grams)))]
    theta, widths = point.theta, hyper.widths
    beta = np.ascontiguousarray(theta[:, 1:][:, part])
    order = rng.permutation(beta.shape[1])[:N_TOGETHER]
    gradient = np.ascontiguousarray(pilot.linear[:, 1:][:, part] - pilot.weights[:, None] * (beta @ gram))
    before, u = gradient.copy(), np.zeros(beta.shape[1])
    moved = beta.copy()
    stream, log_u = make_streams(rng, 1)[0], -rng.exponential()
    sweep_widths(order, hyper.df, widths[part] ** -2.0, pilot.weights, gram, stream, moved, gradient, u)
    new = theta.copy()
    new[:, 1:][:, part] = moved
    new[:, 0] = _sheared(pilot, theta) - np.einsum("jk,jk->j", pilot.shear, new[:, 1:])
    ahead = evaluate(likelihood, new)
    # l̂ is quadratic, so its gain is the step times the mean of the gradients at both ends.
    gain = ahead.log_likelihood - point.log_likelihood - 0.5 * float(np.sum((moved - beta) * (before + gradient)))
    gain += 0.5 * intercept * float(theta[:, 0] @ theta[:, 0] - new[:, 0] @ new[:, 0])
    if not log_u < gain:
        return hyper, point, False
    widths = widths.copy()
    widths[part] *= np.exp(u)
    return hyper._replace(widths=widths), ahead, True
