"""What Orion leaves on objects of a cluster when it goes, and its removal: the work of `orion cleanup`.

remains     what an object still says for Orion, and the patch that ends it: pure functions
cleaning    all objects of a cluster, against the API server

It takes back what the reconciler and the agents wrote and nobody renews any more: labels of nodes, the state of GPUs
and of shares. The Job of `helm uninstall` runs it once all else has gone, and with that the right to write it again.

Pods are left alone. Their grant (annotation orion.gpu/grant) is the terms under which they go on, for an Orion that
comes back too, and the right to write every pod's status is more than an uninstall is worth.
"""
