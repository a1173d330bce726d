"""Models from and for the Hugging Face hub: import, export, publish."""
