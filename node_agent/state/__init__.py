"""What an agent saves for the next one: the root directory with its lock, and the state file."""
