"""From files to sequences: sources -> formats -> encode -> cache."""
