"""The catalogue of labelled tasks, the format of their rows, and the cells of the fine-tuning matrix."""
