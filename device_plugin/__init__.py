"""The kubelet's side of sharing: every GPU's slots as devices, and what a container that was given one needs.

`serving.py` puts the parts together. The room knows the node agent by `orion.node_agent.api` alone, and the API server
not at all: it starts, registers and allocates on the last word that it heard.
"""
