"""Moves that change one tree and leave its posterior invariant."""
