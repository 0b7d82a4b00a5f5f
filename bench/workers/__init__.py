"""Processes that run workloads on command (`worker`), and the parent that commands them (`crew`)."""
