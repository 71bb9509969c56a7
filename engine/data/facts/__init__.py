"""What is gathered about each row while it is tokenised."""
