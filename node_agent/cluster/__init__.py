"""The agent in a cluster: who holds each slot, what the grants are, and what the agent reports to the API server.

running        starts all of this for one agent
pod_resources  the kubelet's answer: which container has which device
state          who holds which slot, as plain values, for whoever reports it
holders/       pods, kept current by a watch; identity: who holds each slot; grants: what those pods are granted;
               holders: identity and grants together, what the rest of the agent asks
reporting/     reports to the API server: GPUDevices, Events; unmanaged processes; GPUs that another plugin offers too

Nothing here is imported by an agent outside a cluster. The kubelet decides who holds a slot, the API server what that
pod may do; with either away, what was known last stands.
"""
