"""The shards stage: cuts documents into fixed-length examples in memory-mapped files."""
