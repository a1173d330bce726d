"""The fine-tuning stages: one task and one seed, from any encoder, to predictions."""
