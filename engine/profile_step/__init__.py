"""Where the time of a step goes: marks in the training code, and what torch's profiler recorded between them."""
