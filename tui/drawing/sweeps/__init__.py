"""Lines of the screens of sweeps."""
