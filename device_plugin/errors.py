"""What the plugin answers in place of a result: a sentence that ends up in the pod's events."""

import grpc


class RequestRefused(Exception):
    """A request of the kubelet cannot be done; the text is for the people who own the pod."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class BadRequest(RequestRefused):
    """The request names what is not there, or what cannot be had together."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotNow(RequestRefused):
    """It may work when it is tried again."""

    code = grpc.StatusCode.UNAVAILABLE


class HostRefused(RequestRefused):
    """The node's files refuse: a full disk, a missing driver."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class VersionMismatch(Exception):
    """The kubelet does not speak this version of the protocol: nothing but another plugin helps."""
