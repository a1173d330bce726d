"""Weights of other makes to ``models/pretrained``: Hugging Face, TensorFlow, another vocabulary."""
