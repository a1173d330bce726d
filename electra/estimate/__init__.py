"""Parameters, FLOPs, memory and hours of pre-training, computed before it starts."""
