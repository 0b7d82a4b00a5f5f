"""Version v1alpha1, of Kubernetes 1.36."""
