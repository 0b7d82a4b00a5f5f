"""What a container with slots gets, as one neutral description: mounts, environment, device nodes and CDI names.

The device plugin answers the kubelet's Allocate with it; `cdi.py` writes it as a CDI specification, for claims. So both
give the same container, and a way of giving GPUs is written once. The package also has what every program that gives
slots to containers needs: the agent's snapshot and the link to the agent, the hook's files on the node, the sources of
the mounts.

Rejected: the kubelet's ContainerAllocateResponse as the description. It cannot say that the name of a GPU is a CDI name
however it is passed, and a program without device plugin would depend on that protocol.
"""
