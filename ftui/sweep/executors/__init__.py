"""Where the trials of a sweep run: this machine's queue, the jobs of a SLURM cluster, or a Ray cluster."""
