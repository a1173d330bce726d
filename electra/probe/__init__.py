"""The stage probe: what pre-trained weights know before any fine-tuning."""
