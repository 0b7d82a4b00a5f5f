"""Version v1, since Kubernetes 1.37."""
