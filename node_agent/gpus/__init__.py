"""The GPUs of this machine: one interface, one file for each way to find them."""
