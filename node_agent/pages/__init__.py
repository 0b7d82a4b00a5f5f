"""The shared pages: memory with exactly one writer (`descriptors`), and what the agent writes and reads there."""
