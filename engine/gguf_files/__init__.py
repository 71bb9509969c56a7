"""Writes models and adapters as GGUF files, and compares them with what they were made from."""
