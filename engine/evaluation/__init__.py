"""Evaluation of what has been trained: losses by row, answers, and what was forgotten."""
