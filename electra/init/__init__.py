"""`electra init`: settings for a user's own texts and table."""
