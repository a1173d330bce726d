"""From raw text to examples: corpus, WordPiece vocabulary, shards."""
