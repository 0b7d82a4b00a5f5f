"""The kubelet's device-plugin interface, v1beta1: `api.proto` of k8s.io/kubelet v0.34.4, unmodified, under its LICENSE.

`make generate` makes the stubs in this folder. `api.proto` is a copy, because the kubelet's own module is in Go. The
copy is unmodified, because its names are part of the kubelet's protocol.
"""
