"""What one agent leaves to the next: the root directory, its lock, and the state file in it."""
