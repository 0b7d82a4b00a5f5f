"""The kubelet's device-plugin interface, v1beta1: `api.proto` of k8s.io/kubelet v0.34.4, unmodified, under its LICENSE.

The stubs beside it are made by `make generate`. A copy, because the kubelet's own module is Go; unmodified, because the
names on the wire are the kubelet's.
"""
