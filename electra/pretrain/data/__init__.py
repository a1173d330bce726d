"""Shards to the batches of one process: order, packing, masks and random numbers from counters."""
