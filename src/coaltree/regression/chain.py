r"""One chain: Gibbs sampling over coefficients, tree, Φ, leaf noise, scale and the width of the common level.

An iteration draws (μ, β) given the rest (`coefficients`), then leaf noise with the coefficients following
(`collapsed`), then, for some outcomes, place in the tree and coefficients together (`leaves`), then widths with Φ and
the coefficients (`widths`), then the rest given β (`hyper`). During burn-in the number of steps of a trajectory is set
by its acceptance and the pilot moves to where the chain is; afterwards both stay.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats
from coaltree.inference import learn
from coaltree.model.covariance import PooledWishart
from coaltree.regression import coefficients
from coaltree.regression.coefficients import Gaussian, Pilot, Point
from coaltree.regression.collapsed import move_noise
from coaltree.regression.hyper import draw_hyper, log_joint
from coaltree.regression.leaves import move_leaf
from coaltree.regression.likelihood import Likelihood, penalised_mode
from coaltree.regression.prior import Hyper, Prior, precision
from coaltree.regression.widths import move_common, move_widths

HMC, ALBERT_CHIB = "hmc", "albert-chib"
METHODS = (HMC, ALBERT_CHIB)

# Leaves that are hung anew with their coefficients, as a fraction of all, at each iteration.
LEAF_MOVES = 0.1
# Sweeps of the tree an iteration. With 21 outcomes and 2 000 rows one costs a few hundredths of it. Clades mix better
# by two to eight than by one; which of these is best is within noise (`python -m benchmarks.probit --sweeps 1 2 4 8`).
N_SWEEPS = 4
# Adaptation, in burn-in only: acceptance is looked at once a window.
WINDOW = 20
LOWEST_ACCEPTANCE, HIGHEST_ACCEPTANCE = 0.75, 0.93
FIRST_STEPS, MOST_STEPS = 3, 32
# Coefficients up to which draws are kept in double precision.
MOST_DOUBLE = 5000
PILOT_AT = (0.25, 0.6)  # fractions of burn-in

TRACES = ("log_likelihood", "log_joint", "spread", "leaf_noise", "last_time", "log_det", "acceptance", "n_steps")


class Settings(NamedTuple):
    """How a chain runs."""

    burn_in: int
    method: str = HMC
    thin: int = 1  # iterations a kept draw


class Moving(NamedTuple):
    """Everything that changes from one iteration to the next."""

    point: Point
    hyper: Hyper
    n_done: int
    pilot: Any  # Pilot; WidePilot of a wide prior
    n_steps: int
    accepted: float  # sum of acceptance probabilities in this window
    theta_sum: Floats  # (P, K+1), since the pilot moved
    n_summed: int


class Chain:
    """A chain and what it has drawn so far. `advance` makes it longer; nothing else changes it."""

    def __init__(self, likelihood: Likelihood, prior: Prior, settings: Settings, rng: np.random.Generator) -> None:
        self.likelihood, self.prior, self.settings, self.rng = likelihood, prior, settings, rng
        self._normal_curvature: Floats | None = None
        self.outcomes = [likelihood.of_outcome(j) for j in range(likelihood.n_outcomes)]
        self.n_leaf_moves = max(1, round(LEAF_MOVES * likelihood.n_outcomes))
        self.moving: Moving | None = None
        self.draws: dict[str, list[Any]] = {name: [] for name in ("theta", "children", "times", "leaf_noise", "spread")}
        self.trace: dict[str, list[float]] = {name: [] for name in TRACES}
        self.precision_sum: Floats = np.zeros((likelihood.n_features,) * (1 if prior.wide else 2))

    @property
    def n_done(self) -> int:
        """Iterations so far."""
        return self.moving.n_done if self.moving else 0

    def without_draws(self) -> Chain:
        """Return a copy that goes on from here with nothing kept: small enough to travel."""
        light = copy.copy(self)
        light.rng, light.precision_sum = copy.deepcopy(self.rng), self.precision_sum.copy()
        light.draws = {name: [] for name in self.draws}
        light.trace = {name: [] for name in self.trace}
        return light

    def follow(self, other: Chain) -> None:
        """Take over where a copy without draws has got to, and what it has kept on the way."""
        self.rng.bit_generator.state = other.rng.bit_generator.state
        self.moving, self.precision_sum = other.moving, other.precision_sum
        for own, new in ((self.draws, other.draws), (self.trace, other.trace)):
            for name, values in new.items():
                own[name].extend(values)

    def progress(self) -> dict[str, str]:
        """Tell how often trajectories are accepted."""
        return {"acceptance": f"{self.trace['acceptance'][-1]:.2f}"} if self.trace["acceptance"] else {}

    def start(self) -> Moving:
        """Begin at a draw from the Laplace approximation under independent N(0, 1) coefficients."""
        likelihood, prior = self.likelihood, self.prior
        n_outcomes, n_features = likelihood.n_outcomes, likelihood.n_features
        independent = np.append(prior.intercept_sd**-2.0, np.ones(n_features))
        mode = penalised_mode(likelihood, independent)
        pilot = self.make_pilot(mode)
        diagonal = np.zeros((n_outcomes, n_features + 1, n_outcomes, n_features + 1))
        np.einsum("jkjk->jk", diagonal)[:] = independent
        gaussian = coefficients.approximate(diagonal, pilot)
        theta = gaussian.colour(self.rng.standard_normal(mode.size)).reshape(mode.shape)
        beta = np.ascontiguousarray(theta[:, 1:])
        unknowns = learn.first_guess(beta, prior.family, None) if n_outcomes > 1 else None
        spread = float(np.sqrt(np.mean(beta.mean(axis=0) ** 2)))
        return Moving(
            coefficients.evaluate(likelihood, theta),
            Hyper(unknowns, max(spread, 1e-3)),
            n_done=0,
            pilot=pilot,
            n_steps=FIRST_STEPS,
            accepted=0.0,
            theta_sum=np.zeros_like(theta),
            n_summed=0,
        )

    def make_pilot(self, theta: Floats) -> Pilot:
        """Expand the likelihood around θ."""
        return coefficients.make_pilot(self.likelihood, theta)

    def advance(self) -> None:
        """Make one iteration and keep its draw."""
        now = self.moving or self.start()
        point, hyper, acceptance = self.draw(now)
        n_steps = now.n_steps
        now = now._replace(point=point, hyper=hyper, n_done=now.n_done + 1)
        if self.settings.method == HMC and now.n_done <= self.settings.burn_in:
            now = self.adapt(now, acceptance)
        self.keep(now, acceptance, n_steps)
        self.moving = now

    def draw(self, now: Moving) -> tuple[Point, Hyper, float]:
        """Coefficients, then everything else; and how likely the trajectory was accepted."""
        likelihood, hyper, acceptance = self.likelihood, now.hyper, 1.0
        prior_precision = precision(hyper, self.prior, likelihood.n_outcomes, likelihood.n_features)
        if self.settings.method == ALBERT_CHIB:
            if self._normal_curvature is None:
                self._normal_curvature = coefficients.normal_curvature(likelihood)
            point = coefficients.albert_chib(now.point, likelihood, self._normal_curvature, prior_precision, self.rng)
        else:
            gaussian = coefficients.approximate(prior_precision, now.pilot)
            point, acceptance = coefficients.hamiltonian(
                now.point, likelihood, now.pilot, gaussian, now.n_steps, self.rng
            )
            if hyper.unknowns is not None:
                hyper, point = self.move_both(hyper, point, gaussian, now.pilot)
        return point, draw_hyper(hyper, point.theta, self.prior, N_SWEEPS, self.rng), acceptance

    def log_joint(self, now: Moving) -> float:
        """log p(β, t, π | Φ, s₀)."""
        return log_joint(now.hyper, now.point.theta)

    def log_det(self, hyper: Hyper) -> float:
        """log|Φ|."""
        assert hyper.unknowns is not None
        return hyper.unknowns.covariance.log_det

    def precision_of(self, hyper: Hyper) -> Floats:
        """Φ⁻¹."""
        assert hyper.unknowns is not None
        half = hyper.unknowns.covariance.whiten(np.eye(len(self.precision_sum)))
        return np.asarray(half @ half.T)

    def move_both(self, hyper: Hyper, point: Point, gaussian: Gaussian, pilot: Pilot) -> tuple[Hyper, Point]:
        """Move hyperparameters and coefficients together, where each would hold the other back."""
        likelihood, prior, rng = self.likelihood, self.prior, self.rng
        hyper, point, _, _ = move_noise(hyper, point, gaussian, likelihood, pilot, prior, rng)
        for j in rng.permutation(likelihood.n_outcomes)[: self.n_leaf_moves]:
            hyper, point, _ = move_leaf(hyper, point, j, self.outcomes[j], pilot, prior, rng)
        if isinstance(prior.family, PooledWishart):
            for move in (move_common, move_widths):
                hyper, point, _ = move(hyper, point, likelihood, pilot, prior.family, rng)
        return hyper, point

    def adapt(self, now: Moving, acceptance: float) -> Moving:
        """Set the number of steps by the acceptance of the last window, and move the pilot."""
        accepted, n_steps = now.accepted + acceptance, now.n_steps
        if now.n_done % WINDOW == 0:
            rate = accepted / WINDOW
            if rate < LOWEST_ACCEPTANCE:
                n_steps = min(max(n_steps + 1, round(1.5 * n_steps)), MOST_STEPS)
            elif rate > HIGHEST_ACCEPTANCE:
                n_steps = max(n_steps - 1, 1)
            accepted = 0.0
        theta_sum, n_summed, pilot = now.theta_sum + now.point.theta, now.n_summed + 1, now.pilot
        if now.n_done in [round(part * self.settings.burn_in) for part in PILOT_AT]:
            # The later half of what is summed would do; a mean over all of it is close enough for an expansion point.
            pilot = self.make_pilot(theta_sum / n_summed)
            theta_sum, n_summed = np.zeros_like(theta_sum), 0
        return now._replace(n_steps=n_steps, accepted=accepted, pilot=pilot, theta_sum=theta_sum, n_summed=n_summed)

    def keep(self, now: Moving, acceptance: float, n_steps: int) -> None:
        """Append to the trace and, after burn-in, to the draws."""
        hyper, unknowns = now.hyper, now.hyper.unknowns
        row = {
            "log_likelihood": now.point.log_likelihood,
            "log_joint": self.log_joint(now),
            "spread": hyper.spread,
            "leaf_noise": np.nan if unknowns is None else float(unknowns.leaf_noise[0]),
            "last_time": np.nan if unknowns is None else float(unknowns.tree.times[-1]),
            "log_det": np.nan if unknowns is None else self.log_det(hyper),
            "acceptance": acceptance,
            "n_steps": float(n_steps),
        }
        for name, value in row.items():
            self.trace[name].append(value)
        after = now.n_done - self.settings.burn_in
        if after <= 0 or after % self.settings.thin:
            return
        # Of many coefficients, half the digits in half the memory.
        large = now.point.theta.size > MOST_DOUBLE
        self.draws["theta"].append(now.point.theta.astype(np.float32 if large else np.float64))
        widths = hyper.widths if unknowns is None and hyper.widths is not None else 1.0
        self.draws["spread"].append(hyper.spread * widths)
        if unknowns is not None:
            self.draws["children"].append(unknowns.tree.children)
            self.draws["times"].append(unknowns.tree.times)
            self.draws["leaf_noise"].append(float(unknowns.leaf_noise[0]))
            self.precision_sum += self.precision_of(hyper)
