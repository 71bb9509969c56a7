"""`ftui rollouts`: what a run has answered while it trains on its own answers; `ftui make-task`: rows for that."""
