"""Measurements of speed, memory and learning, one command each (benchmarks/README.md)."""
