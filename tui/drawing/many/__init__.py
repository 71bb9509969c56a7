"""Lines of the screens of many runs."""
