"""The DRA driver: it offers the node's GPUs as devices, and gives containers the slots of the claims that they use.

The scheduler chooses the GPU, because a device says how much of its time, memory and slots can be claimed. The driver
takes a free slot on that GPU, tells the agent whose it is, and writes a CDI file that the container runtime applies.
`serving.py` assembles the parts.

The driver reads claims and writes ResourceSlices with its own token. The agent could do both with the driver as a part
of it. That was rejected: tenants talk to the agent, and it has no right to read what their namespaces contain. The
driver listens only on sockets in the kubelet's folders.
"""
