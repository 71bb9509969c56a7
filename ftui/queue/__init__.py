"""Runs that wait for a card: one journal in a folder of runs, one dispatcher that starts what is next."""
