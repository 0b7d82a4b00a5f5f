"""The advertised devices: which GPUs the device plugin advertises, with how many slots, and why not others."""
