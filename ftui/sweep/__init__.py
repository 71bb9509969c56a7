"""Searches for values: trials are plain runs, judged at rungs, and the best of them are promoted by going on."""
