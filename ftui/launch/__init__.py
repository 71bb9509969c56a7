"""Starting, resuming and forking runs, for the command line and the screens."""

REMOTE_CODE = "remote-code"
"""What `--allow` takes: consent to run the Python code that comes with a model."""
