"""A seeded English-like world: documents and labelled tasks without a download."""
