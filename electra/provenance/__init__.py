"""Where an artefact comes from, back to the raw files, and the corpus described for others."""
