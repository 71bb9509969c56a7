"""From examples to tokens, and which of them are trained on."""
