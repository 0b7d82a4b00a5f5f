"""Gemini's resource files: reads who may use how much of a GPU, follows changes, applies them to slots."""
