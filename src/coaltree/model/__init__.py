"""The mathematics: pure functions on arrays."""

from coaltree.model import coalescent, diffusion, gig

__all__ = ["coalescent", "diffusion", "gig"]
