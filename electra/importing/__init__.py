"""Weights from other projects to ``models/pretrained``: Hugging Face, TensorFlow, another vocabulary."""
