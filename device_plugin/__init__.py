"""The kubelet's side of sharing: slots as devices. Empty so far; README.md says what it will know, and must not."""
