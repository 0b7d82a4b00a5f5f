"""The interface by which node agents learn of the pods of their own node: `node_pods.proto`, and how messages are sent.

The operator serves it, and an agent calls it. Neither imports the other. `make generate` makes `node_pods_pb2`.
Rejected: gRPC, because it keeps 100 KB for each connection with TLS, and an operator may have 5,000 of them
(docs/results/operator.md).
"""

import socket

from google.protobuf.message import Message

AUDIENCE = "orion-operator"
""" The audience of an agent's token for this interface. The API server does not accept a token of this audience, so the
operator cannot use it there. """

LENGTH_BYTES = 4
""" The bytes before a message that hold its length. """

KEEPALIVE_SECONDS = 10
""" Both sides ask after this time without traffic whether the other one is there, and give up a peer that does not
answer within the same time. """


def frame(message: Message) -> bytes:
    """Return a message as it is sent."""
    text = message.SerializeToString(deterministic=True)
    return len(text).to_bytes(LENGTH_BYTES, "big") + text


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel find out whether the peer of a TCP connection is still there.

    The processes at both ends need not wake up for that. A peer that hangs answers, too: its own probes end it.
    """
    half = KEEPALIVE_SECONDS // 2
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS),
        (socket.TCP_KEEPINTVL, half),
        (socket.TCP_KEEPCNT, 2),
        (socket.TCP_USER_TIMEOUT, 2_000 * KEEPALIVE_SECONDS),
        (socket.TCP_NODELAY, 1),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
