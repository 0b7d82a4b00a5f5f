"""The part of a wrapper that replaces a default stream by the own stream of the thread's client.

See `src/threads/redirect.h`. For a thread that is bound to no client, each replacement costs the wrapper one
thread-local load.
"""

from orion.errors import Invalid
from orion.hook.cuda_header import Function
from orion.hook.declared import Declaration


def streams_of(function: Function) -> list[str]:
    """Return the names of the parameters that are streams."""
    return [parameter.name for parameter in function.parameters if parameter.type == "CUstream"]


def redirected(function: Function, declaration: Declaration) -> list[str]:
    """Return lines that replace a default stream by the own stream of the client that the thread is bound to."""
    if declaration.kind == "lifetime":
        return []
    if declaration.options.get("stream") == "config->hStream":
        return [
            "CUlaunchConfig redirected;",
            "if (orion_redirects(config->hStream))",
            "    redirected = *config, redirected.hStream = orion_own_stream(config->hStream), config = &redirected;",
        ]
    return [f"{stream} = orion_redirected({stream});" for stream in streams_of(function)]


def on_own_stream(function: Function, declaration: Declaration) -> tuple[list[str], list[str]]:
    """Return lines that make a call without a stream parameter on the client's own stream, or in order with it.

    The first list has the lines before the driver's call. The second list has the lines after the call.
    """
    if streams_of(function) or "stream" in declaration.options:
        return [], []
    own = declaration.options.get("own")
    if own is None:
        raise Invalid(f"{declaration.place}: {declaration.name} has no stream parameter; add own=NAME or own=legacy")
    if own == "legacy":
        return ["orion_before_legacy();"], ["orion_after_legacy();"]
    same = own.replace("{version}", "_v2" if "_v2" in function.name else "")
    arguments = ", ".join(parameter.name for parameter in function.parameters)
    call = f"wrapped_{same}({arguments}, own)"
    finished = f"orion_finished(own, {call})" if "waits" in declaration.words else call
    return ["CUstream own = orion_redirected(NULL);", f"if (own != NULL) return {finished};"], []


def declared_ahead(function: Function, declaration: Declaration) -> str:
    """Return the declaration of the wrapper that this function's wrapper calls; empty if there is none."""
    own = declaration.options.get("own", "legacy")
    if own == "legacy":
        return ""
    same = own.replace("{version}", "_v2" if "_v2" in function.name else "")
    return f"static __typeof__({same}) wrapped_{same};\n"
