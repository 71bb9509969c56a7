"""The memory of a training step without its card: the real model on the `meta` device, every operation followed."""
