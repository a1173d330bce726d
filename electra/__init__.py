"""Stages of the pipeline: raw text in, a published ELECTRA encoder and its score card out."""
