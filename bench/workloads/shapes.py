"""The sizes of the transformers, as (layers, width, heads)."""

BERT_BASE = (12, 768, 12)
"""BERT-base as published; used for inference."""
BERT_WIDE = (12, 1024, 16)
"""Used for BERT training."""
GPT = (24, 1024, 16)
"""The decoder of all GPT workloads: 350 million weights."""
