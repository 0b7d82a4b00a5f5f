"""The node agent: the control plane of GPU sharing on one machine.

It brings clients together on a GPU of shared pages, grants limits, notices who died or was stopped, shares the
window out, and reports. It stands on no launch path: without it, clients continue under their last grants.
"""
