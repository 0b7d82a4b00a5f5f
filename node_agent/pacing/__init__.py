"""Rate limits (token buckets), and loops that continue after a failure."""
