"""Where the time of a training step goes, and the least that it could take."""
