"""Why the API server refuses a request."""

import json
from collections.abc import Callable
from typing import Any

from kubernetes import client


def refusal(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the sentence with which a request is refused, or nothing."""
    try:
        call(*arguments, **options)
    except client.ApiException as error:
        return str(json.loads(error.body)["message"])
    return ""
