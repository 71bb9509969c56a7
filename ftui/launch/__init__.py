"""Starting, resuming and forking runs, for the command line and the screens."""
