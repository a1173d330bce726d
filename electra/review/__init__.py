"""Reviewing runs: what differs between two of them, whether it is more than noise, and a list of all."""
