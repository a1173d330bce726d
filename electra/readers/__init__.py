"""The tasks stage: labelled data in official, hub and custom layouts to rows of one format."""
