"""A real Kubernetes control plane on loopback: etcd, API server, controller manager, scheduler; for tests and people.

Nodes, containers and images are not part of it: pods are admitted, scheduled and counted, and never run. Real binaries
were preferred to a fake API server because what we rely on is exactly what fakes leave out: CEL rules with their cost
limits, RBAC, admission, conflicts, watches that break.

`python -m tools.cluster --help` says what people can do with it; `tests/cluster/conftest.py` is how tests use it.
"""
