"""Import weights of other projects into ``models/pretrained``: Hugging Face, TensorFlow, another vocabulary."""
