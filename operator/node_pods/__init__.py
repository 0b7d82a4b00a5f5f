"""Serves each node agent the pods of its node, with their grants (`orion.node_pods`).

Agents have no right to read pods: RBAC cannot restrict such a right to one node. The operator watches all pods anyway,
so every replica of it answers for each node, from memory. A grant is derived when it is sent, and stored nowhere.

callers       finds out which node's agent calls, by a TokenReview
publishing    makes this replica's certificate known to the agents, in a ConfigMap
streams       the open calls: how many, and which of them a change concerns
connections   one agent's connection: TLS and messages
serving       the server, and the order in which all of this starts and ends
settings      what the operator's options say

The package does not know the reconciler. It gets the messages from a `Source`.
"""
