"""The node agent: the control plane of GPU sharing on one machine.

It adds clients to a GPU's shared pages, writes their grants, detects dead and stopped clients, divides the window, and
reports. No kernel launch waits for the agent. While no agent runs, clients continue under their last grants.
"""
