"""A real Kubernetes cluster on this machine, for tests and people: a control plane, and nodes on which pods run.

Without nodes, the cluster is etcd, API server, controller manager and scheduler on loopback, and needs no root: pods
are admitted, scheduled and counted, but never run. With nodes, it has its own network, with containerd, kubelet and
kube-proxy on each node, and needs root. A fake API server and a fake kubelet were rejected, because Orion relies on
behaviour that fakes omit. For the API server, that is CEL rules with their cost limits, RBAC, admission, conflicts and
interrupted watches. For the kubelet, it is the order of its calls to a device plugin, and the state that it keeps about
the plugin.

`python -m testbed --help` describes the commands for people. Tests use it through `tests/cluster/conftest.py` and
`tests/node/conftest.py`.
"""
