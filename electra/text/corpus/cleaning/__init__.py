"""Cleaning by the named steps of ``corpus.cleaning``: pure functions on the lines of a document."""
