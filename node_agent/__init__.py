"""The node agent: the control plane of GPU sharing on one machine.

It brings clients together on a board of shared pages, grants limits, notices who died or was stopped, shares the
window out, and reports. It stands on no launch path: when it is gone, clients go on under its last word.
"""
