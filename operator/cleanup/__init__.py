"""`orion cleanup`: removes what Orion wrote into the objects of a cluster, after an uninstall.

remains     pure functions: what an object still holds of Orion, and the patch that removes it
claims_in_use  waits, before an uninstall, until no pod uses a ResourceClaim
cleaning    lists and patches all objects of a cluster through the API server

The reconciler and the agents wrote node labels and the status of GPUs and shares. After an uninstall nothing updates
these values, so the cleanup removes them or sets them to unknown. A Job of `helm uninstall` runs the cleanup once the
operator, the agents and their rights have been deleted, so nothing writes these values again.

The cleanup does not change pods. Running pods keep the names of their shares (annotation orion.gpu/share), which Orion
needs if it is installed again. To remove them, the cleanup would need the right to write every pod.
"""
