"""The agent in a cluster: who holds each slot, what the grants are, and what the agent reports to the API server.

    running        starts the parts of this package for one agent
    pod_resources  queries the kubelet: which container has which device
    state          who holds which slot, as plain values, for the packages that report it
    holders/       pods.py receives the node's pods from the operator, identity.py finds out which pod holds each slot,
                   grants.py applies the pods' grants, and holders.py combines the results for the rest of the agent
    reporting/     writes GPUDevices and Events to the API server; detects unmanaged processes, and GPUs that other
                   device plugins advertise

An agent outside a cluster imports nothing of this package. The kubelet decides which pod holds a slot. The operator
derives that pod's grant. While the kubelet or the operator does not answer, its last answer stays valid.
"""
