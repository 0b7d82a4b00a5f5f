"""The shared pages: memory with one writer for ever (`descriptors`), and what the agent writes and reads there."""
