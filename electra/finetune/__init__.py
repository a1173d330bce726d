"""Labelled tasks, fine-tuning and scores."""
