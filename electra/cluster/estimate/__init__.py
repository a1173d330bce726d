"""Estimates of pre-training before it starts: parameters, FLOPs, memory and hours."""
