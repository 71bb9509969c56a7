"""What lies in host memory while a run trains on a device: stored activations, frozen layers, the optimizer's state."""
