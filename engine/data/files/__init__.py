"""From files of any kind to rows, each with its place."""
