"""The row ledger: the loss of each row in each step, and what it says of rows and of steps."""
