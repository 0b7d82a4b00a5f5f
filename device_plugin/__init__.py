"""The kubelet device plugin: it advertises every GPU's slots as devices and prepares the containers that get one.

`serving.py` assembles the parts. This package uses the node agent through `orion.node_agent.api` alone and does not use
the API server: it starts, registers and allocates with the last snapshot that the agent sent.
"""
