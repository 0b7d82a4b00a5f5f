"""The advertised devices: which GPUs the device plugin offers, in how many slots, and what stands against them."""
