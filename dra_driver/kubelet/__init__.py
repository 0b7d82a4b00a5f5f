"""The kubelet's interfaces for DRA drivers: files `api.proto` of k8s.io/kubelet v0.37.2, unmodified, under its LICENSE.

`claims/` is pkg/apis/dra/v1, `registration/` is pkg/apis/pluginregistration/v1, and `health/` is pkg/apis/dra-health:
v1alpha1 is for Kubernetes 1.36. `make generate` makes the stubs in these folders. The files are copies, because the
kubelet's own module is in Go. They are unmodified, because their names are part of the kubelet's protocol.
"""
