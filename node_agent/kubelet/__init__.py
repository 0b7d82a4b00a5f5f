"""The kubelet's PodResources interface, v1: `api.proto` of k8s.io/kubelet v0.34.4, unmodified, under its LICENSE.

It reports which container holds which slot. `make generate` makes the stubs beside `api.proto`.
"""
