"""What the agent reports to the API server: GPUDevices with their conditions, and Events. Also the metrics of this."""
