"""What lies where, where a model is divided among processes or partly in host memory."""
