"""Lines of C that the wrappers of several classes of driver functions have in common."""

from orion.errors import Invalid
from orion.hook import own_streams
from orion.hook.cuda_header import Function
from orion.hook.declared import Declaration


def only_call(declaration: Declaration) -> tuple[str, str]:
    """Return the kind and the arguments of a declaration's only detail with parentheses.

    Raises:
        Invalid: it has none or several.
    """
    if len(declaration.calls) != 1:
        raise Invalid(f"{declaration.place}: {declaration.name} needs exactly one detail with parentheses")
    return next(iter(declaration.calls.items()))


def stream_name(function: Function, declaration: Declaration) -> str:
    """Return the initializer of the name of the stream on which a function works.

    Raises:
        Invalid: the function has several streams, and the declaration names none.
    """
    streams = own_streams.streams_of(function)
    if len(streams) > 1 and "stream" not in declaration.options:
        raise Invalid(f"{declaration.place}: {declaration.name} has the streams {', '.join(streams)}; add stream=NAME")
    handle = declaration.options.get("stream", streams[0] if streams else "NULL")
    return f"{{{handle}, {'true' if function.per_thread else 'false'}}}"


def real(function: Function) -> str:
    """Return the call of the driver's function."""
    return f"real({', '.join(parameter.name for parameter in function.parameters)})"


def calling(function: Function, after: list[str]) -> list[str]:
    """Return the lines that call the driver's function, then the lines of `after`, then the return statement."""
    return [f"CUresult result = {real(function)};", *after, "return result;"]


def operation_begin(stream: str) -> str:
    """Return the statement before a call that puts something without GPU time on the stream of this name."""
    return f"orion_operation_begin((struct orion_stream_name){stream});"


def operation_end(stream: str) -> str:
    """Return the statement after a call that may make the stream of this name wait."""
    return f"orion_operation_end((struct orion_stream_name){stream});"


def on_success(call: str) -> list[str]:
    """Return the lines that make a call if the driver's function has succeeded."""
    return [f"if (result == CUDA_SUCCESS) {call};"]


def attribute_of(kind: str, of: str, declaration: Declaration) -> list[str]:
    """Return lines that replace the value of an attribute if it is a priority: `sets_attribute(id, value)`."""
    arguments = declaration.calls["sets_attribute"]
    value = arguments.split(",")[1].strip()
    return ["CUlaunchAttributeValue changed;", f"{value} = orion_attribute_of_{kind}({of}{arguments}, &changed);"]
