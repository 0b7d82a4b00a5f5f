"""The kubelet's PodResources interface, v1: `api.proto` of k8s.io/kubelet v0.34.4, unmodified, under its LICENSE.

The stubs beside it are made by `make generate`. It tells which container holds which slot.
"""
