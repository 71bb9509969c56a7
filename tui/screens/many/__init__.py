"""The screens of many runs."""
