"""Text: tokenizers, chat templates, and tokens back to text while they come."""
