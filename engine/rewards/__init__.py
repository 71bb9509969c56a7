"""Rewards of answers: the functions that a run is rewarded by, each in a process of its own, and what they gave."""
