"""How often something may be done: token buckets, and loops that outlive a failure."""
