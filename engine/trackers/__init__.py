"""Trackers: each a process (`python -P -m ftui.engine.trackers RUN_DIR NAME LIFELINE`) that hands a run's records on.

The files are the only contract: the engine knows nothing of trackers, and none can keep it waiting.
"""
