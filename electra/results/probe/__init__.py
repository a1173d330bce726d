"""The stage probe: tests of pre-trained weights before any fine-tuning."""
