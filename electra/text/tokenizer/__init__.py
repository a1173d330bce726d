"""The tokenizer stage: a WordPiece vocabulary, the same bytes on every run."""
