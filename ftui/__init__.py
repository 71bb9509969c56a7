"""ftui fine-tunes language models from a terminal."""

__version__ = "0.1.0"
