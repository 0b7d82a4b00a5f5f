"""A real Kubernetes cluster on this machine: a control plane, and nodes on which pods run; for tests and people.

Without nodes it is etcd, API server, controller manager and scheduler on loopback, and needs no rights: pods are
admitted, scheduled and counted, and never run. With nodes it is a network of its own with containerd, kubelet and
kube-proxy on each, and needs root. Real binaries were preferred to a fake API server and a fake kubelet because what we
rely on is exactly what fakes leave out: CEL rules with their cost limits, RBAC, admission, conflicts, watches that
break; the order in which a kubelet calls a device plugin, and what it remembers of it.

`python -m testbed --help` says what people can do with it; `tests/cluster/conftest.py` and
`tests/node/conftest.py` are how tests use it.
"""
