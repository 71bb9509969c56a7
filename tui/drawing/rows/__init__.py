"""Rows of a profile and of a run: their tokens, what was found in them, which of them are behind a loss."""
