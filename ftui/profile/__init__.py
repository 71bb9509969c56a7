"""The profile: what to train, on what, how, as one frozen value read from TOML."""
