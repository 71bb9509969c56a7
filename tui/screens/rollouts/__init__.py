"""The screen of what a run learns from: its own answers, with their rewards."""
