"""Predictions for new inputs and for leaderboards, with fine-tuned or pre-trained models."""
