"""What a search spends and finds by promotion, beside schedulers that stop: on curves of real trials."""
