"""The catalogue of labelled tasks, the format of their rows, and the runs of the fine-tuning matrix."""
