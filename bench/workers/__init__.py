"""The processes that run workloads on command, and their parent's side."""
