"""The agent in a cluster: who holds each slot, what the grants are, and what the agent reports to the API server.

    running        starts all of this for one agent
    pod_resources  queries the kubelet: which container has which device
    state          who holds which slot, as plain values, for the packages that report it
    holders/       pods, kept current by a watch; identity: who holds each slot; grants: what those pods are granted;
                   holders: identity and grants together, for the rest of the agent
    reporting/     reports to the API server: GPUDevices, Events; unmanaged processes; GPUs of other device plugins too

An agent outside a cluster imports nothing of this package. The kubelet decides who holds a slot. The API server decides
what that pod may do. While one of them does not answer, its last answer stays valid.
"""
