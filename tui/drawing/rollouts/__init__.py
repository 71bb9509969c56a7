"""Drawings of answers that a run learns from."""
