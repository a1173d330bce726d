"""Encoder, generator, heads, batches and losses, as PyTorch modules."""
