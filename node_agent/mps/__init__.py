"""GPU mode `mps`: runs NVIDIA's MPS control daemons, and lets the agent request them.

The agent and the MPS daemon share only a folder (folder.py). The agent writes which GPUs need a control daemon
(modes.py). `orion mps-daemon`, in its own DaemonSet, runs one control daemon for each of these GPUs and writes its
state (supervising.py). The end of an MPS server ends the contexts of its clients, so the daemon's pod must outlive the
agent: an upgrade of Orion replaces the agent and leaves the daemon's pod alone until an administrator deletes that pod.

The control daemons are no children of the agent, because an upgrade of the agent would end all clients. No control
daemon serves all GPUs of a node, because a fault of one client would end the contexts on all of them, and no GPU could
change its mode alone.
"""
