"""Simulates an engine for language models: continuous batching, one iteration after the other.

batching   the loop: admission, prompts in chunks, decoding, recomputation
"""
