"""The shards stage: documents to fixed-length examples in memory-mapped files."""
