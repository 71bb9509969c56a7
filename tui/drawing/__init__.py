"""Rooms that draw: pure functions from a run's facts to lines of text with style names. No Textual, no Rich."""
