"""The gRPC service on the agent's socket: requests are checked, carried out by the agent, and answered."""
