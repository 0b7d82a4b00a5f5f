"""What the kernel reports about processes, and how the agent protects its own process."""
