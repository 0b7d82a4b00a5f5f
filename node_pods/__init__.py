"""The interface by which node agents learn of the pods of their own node: `node_pods.proto` and its generated stubs.

The operator serves it, and an agent calls it. Neither imports the other. `make generate` makes the stubs.
"""

AUDIENCE = "orion-operator"
""" The audience of an agent's token for this interface. The API server does not accept a token of this audience, so the
operator cannot use it there. """

KEEPALIVE_SECONDS = 10.0
""" Both sides ping after this time without traffic, and give up a peer that does not answer within the same time. """
