"""Files from outside of the pipeline: what a run reads, what they hold now, and what DVC watches."""
