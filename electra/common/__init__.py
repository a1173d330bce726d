"""Paths, errors, artefact folders with their manifests, and files that several stages read."""
