"""Reads public traces of training jobs and of requests to language models, one entry after the other.

entries     what a trace holds: jobs or requests, and the lines that were skipped
numbers     numbers in text
text        files, gzip or plain, as numbered lines
columns     the forms that are columns of text, one line an entry
philly      the form that is a JSON list
reading     finds a file's form by its content, and reads it
summary     counts, means and quantiles in one pass
saving      writes entries as CSV

The forms are those that their publishers describe: Synergy, Philly, Alibaba GPU 2023, KubeShare, Azure LLM 2023 and
2024, BurstGPT 1 and 2. polars and pandas were refused: each form needs one pass over its lines.
"""
