"""The sizes of the transformers: layers, width, heads."""

BERT_BASE = (12, 768, 12)
"""BERT-base as published: inference."""
BERT_WIDE = (12, 1024, 16)
"""What BERT training uses."""
GPT = (24, 1024, 16)
"""The decoder of all GPT workloads: 350 million weights."""
