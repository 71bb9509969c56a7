"""What is watched of a run from inside the engine."""
