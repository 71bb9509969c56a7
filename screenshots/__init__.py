"""Pictures of the screens, made by one command: `python -m screenshots.make`."""
