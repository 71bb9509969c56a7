"""`ftui rollouts`: what a run has answered while it trains on its own answers."""
