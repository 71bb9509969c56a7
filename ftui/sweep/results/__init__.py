"""What a sweep has found: as rows, as a profile, as a study of Optuna."""
