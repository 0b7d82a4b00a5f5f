"""A real Kubernetes cluster on this machine, for tests and people: a control plane, and nodes on which pods run.

Without nodes, the cluster is etcd, API server, controller manager and scheduler on loopback, and needs no root: pods
are admitted, scheduled and counted, but never run. With nodes, it has its own network, with containerd, kubelet and
kube-proxy on each node, and needs root. A fake API server and a fake kubelet were rejected, because Orion relies on
exactly what fakes omit: CEL rules with their cost limits, RBAC, admission, conflicts, interrupted watches; the order in
which a kubelet calls a device plugin, and what the kubelet remembers of that plugin.

`python -m testbed --help` describes the commands for people. Tests use it through `tests/cluster/conftest.py` and
`tests/node/conftest.py`.
"""
