"""Compare two runs: list what differs, test whether it exceeds noise; and list all runs."""
