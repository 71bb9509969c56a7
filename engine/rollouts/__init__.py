"""Rollouts: the answers that a run generates to learn from, as values, as files, and what is measured of them."""
