"""The pre-training stage: engine, loop, validation, learning curve and checkpoints."""
