"""The API types of `orion.gpu/v1alpha1`. Empty so far; README.md says what it will know, and must not."""
