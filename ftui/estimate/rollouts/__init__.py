"""What answers that a run samples take: memory beside its steps, time, disk."""
