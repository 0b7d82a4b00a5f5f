"""Writes the wrappers of class `lifetime`: functions that create, change or end what the hook keeps a record of.

Most wrappers call the core before the driver's function, after it, or both. Those that create a context or a stream may
call the driver again, or another of its functions.
"""

from orion.errors import Invalid
from orion.hook.cuda_header import Function
from orion.hook.declared import Declaration
from orion.hook.wrapper_parts import attribute_of, calling, on_success, only_call, real


def _creates_context(function: Function, kind: str, device: str) -> list[str]:
    context = function.parameters[0].name
    creating = "orion_green_creating" if kind == "creates_green" else "orion_context_creating"
    primary = "true" if kind == "retains_primary" else "false"
    asks = f"if (orion_room_ask_first_for_context({device}, {primary}, &room)) "
    return [
        f"{creating}({device});",
        "CUresult result = CUDA_ERROR_OUT_OF_MEMORY;",
        "struct orion_context_room room = {0};",
        f"{'' if kind == 'creates_green' else asks}do result = {real(function)};",
        f"while (result == CUDA_ERROR_OUT_OF_MEMORY && orion_room_for_context({device}, &room));",
        f"orion_room_for_context_ends({device}, &room);",
        *([f"orion_primary_retained({device}, {context}, result);"] if kind == "retains_primary" else []),
        "return result;",
    ]


def _creates_green_stream(function: Function, priority: str) -> list[str]:
    again = f"orion_green_stream_again(*{function.parameters[0].name}, &{priority})"
    return calling(function, [f"if (result == CUDA_SUCCESS && {again}) return {real(function)};"])


def _creates_stream(function: Function, priority: str) -> list[str]:
    if priority != "NULL":
        return [f"{priority} = orion_stream_priority({priority});", f"return {real(function)};"]
    arguments = ", ".join(parameter.name for parameter in function.parameters)
    return [
        "const int priority = orion_stream_priority(0);",
        "if (priority != 0 && orion_driver.cuStreamCreateWithPriority)",
        f"    return orion_driver.cuStreamCreateWithPriority({arguments}, priority);",
        f"return {real(function)};",
    ]


def _sets_node(arguments: str) -> str:
    """Return the call that reports new parameters of a node: `executable, node, type, parameters`."""
    executable, node, kind, parameters = (each.strip() for each in arguments.split(","))
    if kind == "ANY":
        return f"orion_graph_set_any({executable}, {node}, {parameters})"
    return f"orion_graph_set({executable}, {node}, CU_GRAPH_NODE_TYPE_{kind}, {parameters})"


def lifetime(function: Function, declaration: Declaration) -> list[str]:
    """Return the body of a wrapper of class lifetime.

    Raises:
        Invalid: the declaration has no detail of that class, or several.
    """
    kind, handle = only_call(declaration)
    if kind == "creates_stream":
        return _creates_stream(function, handle)
    if kind == "creates_green_stream":
        return _creates_green_stream(function, handle)
    if kind in ("creates_context", "creates_green", "retains_primary"):
        return _creates_context(function, kind, handle)
    around: dict[str, tuple[list[str], list[str]]] = {
        "releases_primary": (
            [f"const bool may_end = orion_primary_releasing({handle});"],
            ["if (may_end) orion_context_ended();"],
        ),
        "starts_driver": (["orion_connections_choose();"], []),
        "ends_context": ([f"orion_context_ending({handle});"], [f"orion_context_destroyed({handle}, result);"]),
        "detaches_context": (["orion_context_detaching();"], [f"orion_context_detached({handle}, result);"]),
        "ends_green": ([f"orion_green_ending({handle});"], ["orion_context_ended();"]),
        "ends_primary": ([f"orion_primary_ending({handle});"], ["orion_context_ended();"]),
        "ends_stream": ([f"if (orion_stream_ending({handle})) return CUDA_SUCCESS;"], []),
        "ends_event": ([f"orion_event_ending({handle});"], []),
        "records_event": ([f"orion_event_elsewhere({handle});"], []),
        "sets_parameters": ([], on_success(f"orion_event_in_node({handle})")),
        "sets_attribute": (
            attribute_of("node", "", declaration) if kind == "sets_attribute" else [],
            on_success(f"orion_attribute_set({handle})"),
        ),
        "ends_module": (["orion_module_ending();"], []),
        "ends_library": (["orion_library_ending();"], []),
        "makes_graph": (
            [],
            [*on_success(f"orion_graph_launch_made({handle})"), *on_success(f"orion_graph_copy_made({handle})")],
        ),
        "updates_graph": ([], on_success(f"orion_graph_updated({handle})")),
        "sets_node": ([], on_success(_sets_node(handle)) if kind == "sets_node" else []),
        "sets_child": ([], on_success(f"orion_graph_set_child({handle})")),
        "enables_node": ([], on_success(f"orion_graph_copy_enabled({handle})")),
        "ends_graph": (
            [
                f"orion_graph_ending({handle});",
                f"orion_graph_memory_ending({handle});",
                f"struct orion_graph_copy *copy = orion_graph_copy_ending({handle});",
            ],
            ["orion_graph_copy_ended(copy, result);"],
        ),
    }
    if kind not in around:
        raise Invalid(f"{declaration.place}: {kind} is not a detail of class lifetime; see hook/declarations/README.md")
    before, after = around[kind]
    return [*before, *calling(function, after)]
