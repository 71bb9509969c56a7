"""The rollouts of a run as values that every command and screen can read, without the training libraries."""
