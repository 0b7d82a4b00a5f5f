"""What the agent can answer an administrator in place of a result; each carries a sentence for a person."""


class AgentError(Exception):
    """The request cannot be carried out."""


class NotFound(AgentError):
    """There is no such GPU or slot."""


class Conflict(AgentError):
    """What is there already contradicts the request."""


class Invalid(AgentError):
    """The request itself is wrong."""


class AlreadyServed(AgentError):
    """Another agent serves this root."""
