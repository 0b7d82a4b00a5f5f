"""GPU mode mps: who runs NVIDIA's MPS control daemons, and how the agent asks for them.

Two processes share a folder, and nothing else. The agent writes which GPUs shall be in mode mps (modes.py); `orion
mps-daemon`, in a DaemonSet of its own, runs one control daemon for each of them and writes how it is (supervising.py).
So an agent may be replaced at any time, and an upgrade of Orion never ends a client's context: an MPS server's end is
its clients' end, so its pod is left alone until somebody deletes it.

Refused: control daemons as children of the agent (an upgrade would end all clients), and a daemon for all GPUs of a
node (one client's fault would end the contexts of all GPUs, and a GPU could not change its mode alone).
"""
