"""An adapter merged into its base, tensor by tensor, and the certificate that the result is what was trained."""
