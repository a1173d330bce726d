"""Pre-training methods, one file each, imported by name (electra/model/objective.py)."""
