"""The tasks stage: converts labelled data in official, hub and own layouts to rows of one format."""
