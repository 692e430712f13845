"""Books and people's own files → paragraphs and sentences."""
