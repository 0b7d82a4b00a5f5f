"""Settings of the server, from the options of `orion operator`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = rf"{_LABEL}(\.{_LABEL})*"


class NodePodsSettings(BaseModel):
    """All settings; durations in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")]
    """ HOST:PORT; port 0: a free port. """

    name: Annotated[str, Field(pattern=f"^{_NAME}$", max_length=253)]
    """ The host name by which agents call; the certificate is for this name. """

    namespace: Annotated[str, Field(pattern=f"^{_LABEL}$", max_length=63)]
    """ The namespace of the ConfigMap. """

    config_map: Annotated[str, Field(pattern=f"^{_NAME}$", max_length=253)] = "orion-operator"
    """ The ConfigMap with the certificates of all replicas. """

    agents: Annotated[str, Field(pattern=f"^{_LABEL}/{_NAME}$")]
    """ The agents' service account, as NAMESPACE/NAME. """

    replica: Annotated[str, Field(pattern="^[-._a-zA-Z0-9]{1,128}$")]
    """ The name of this process: its key in the ConfigMap. """

    connection_seconds: Annotated[float, Field(ge=0.1)] = 600
    """ A connection ends after this time, give or take a tenth. Then the agent calls again, and its token is reviewed.
    So a token that was revoked has no effect after this time, and agents spread over new replicas. """

    certificate_seconds: Annotated[float, Field(ge=2)] = 7 * 24 * 3600
    """ Validity of the certificate. It is replaced after half of this time, for new connections. """

    @property
    def user(self) -> str:
        """The user name of the agents' service account."""
        return f"system:serviceaccount:{self.agents.replace('/', ':')}"
