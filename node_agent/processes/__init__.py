"""What the kernel says of processes, and what it lets them do to the agent."""
