"""The export stage: Hugging Face folders with their model cards."""
