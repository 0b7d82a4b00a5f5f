"""Rules: what a resource file grants to the programs that join by an id."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

PART_LEAST, PART_MOST = 0.001, 1.0
""" Bounds of requests and limits, which are parts of a GPU's time. """
MEMORY_LEAST, MEMORY_MOST = 1 << 20, 1 << 44
""" Bytes; the bounds of a GPUShare's memory limit. """
ID_MAX = 320
""" Gemini's ids have up to 63 characters; KubeShare's are NAMESPACE/NAME of pods. """

Part = Annotated[float, Field(ge=PART_LEAST, le=PART_MOST, allow_inf_nan=False)]


class Rule(BaseModel):
    """What the programs with one id get of a GPU, together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=ID_MAX, pattern=r"^[ -~]+$")
    line: int = Field(ge=1)
    """ Where the rule is in its file, from 1. """
    request: Part | None = None
    """ The part of the time that they are sure to get; None: none. """
    limit: Part = PART_MOST
    """ The part of the time that they get at most. """
    memory_limit_bytes: int = Field(ge=MEMORY_LEAST, le=MEMORY_MOST)
    """ What each of their processes may allocate. """

    @property
    def request_milli(self) -> int:
        """The request in thousandths; 0: none."""
        return round((self.request or 0.0) * 1_000)

    @property
    def limit_milli(self) -> int:
        """The limit in thousandths; 0: none."""
        return round(self.limit * 1_000) % 1_000

    @model_validator(mode="after")
    def _in_order(self) -> "Rule":
        if self.request_milli > (self.limit_milli or 1_000):
            raise ValueError(
                f"request {self.request:g} is above limit {self.limit:g}: lower the request, or exchange the two "
                "numbers (KubeShare's generator seems to write the limit before the request)"
            )
        return self
