"""Answers that a model gives while it trains, judged and trained on: rollouts, advantages, batches."""
