"""Sends a result of a run to the hub, to a folder or through a command, and asks afterwards whether it is there."""
