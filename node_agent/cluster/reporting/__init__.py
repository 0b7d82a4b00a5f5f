"""What the agent reports to the API server: GPUDevices and their conditions, Events, and metrics of all that."""
