"""The evaluate stage: metrics per task and seed, medians and GLUE averages."""
