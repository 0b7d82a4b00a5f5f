"""Reports to the API server: GPUDevices with their conditions, and Events. Also makes the metrics of this work."""
