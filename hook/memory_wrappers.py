"""Writes the C code of the interposed functions that allocate, free, share or report device memory."""

from orion.errors import Invalid
from orion.hook.cuda_header import Function
from orion.hook.declared import Declaration
from orion.hook.wrapper_parts import calling, on_success, only_call, operation_begin, real, stream_name

_NO_ROOM = "result == CUDA_ERROR_OUT_OF_MEMORY"
""" Then others leave a full GPU, and the allocation is tried again (parking/room.h). """


def _from_pool(function: Function, declaration: Declaration, arguments: str) -> list[str]:
    at, size, pool = (each.strip() for each in arguments.split(","))
    stream = stream_name(function, declaration)
    return [
        f"struct orion_pooling pooling = {{.pool = {pool}, .stream = {stream}, .bytes = {size}}};",
        # The pool may be of a GPU on which the process has no context yet: it becomes a client there.
        "if (orion_pool_begin(&pooling)) orion_context_creating(pooling.device);",
        "if (!orion_pool_may_begin(&pooling)) return CUDA_ERROR_OUT_OF_MEMORY;",
        "CUresult result = CUDA_ERROR_OUT_OF_MEMORY;",
        "uint64_t until = 0;",
        "if (orion_room_ask_first_for_pool(&pooling, &until)) do {",
        f"    {operation_begin(stream)}",
        f"    result = {real(function)};",
        f"}} while ({_NO_ROOM} && orion_room_may_come_for_pool(&pooling, &until));",
        f"return orion_pool_ended(&pooling, {at}, result);",
    ]


def _makes_node(function: Function, declaration: Declaration, condition: str) -> list[str]:
    condition = "result == CUDA_SUCCESS" + ("" if condition == "true" else f" && {condition}")
    parameters = declaration.options.get("parameters")
    event = on_success(f"orion_event_in_node({parameters})") if parameters else []
    return calling(function, [f"if ({condition}) orion_graph_memory_begins();", *event])


_OF_POOLS = {
    "takes": _from_pool,
    "makes_pool": lambda function, _, of: calling(function, on_success(f"orion_pool_made({of})")),
    "ends_pool": lambda function, _, of: [f"orion_pool_ending({of});", f"return {real(function)};"],
    "gets_pool": lambda function, _, of: calling(function, on_success(f"orion_memory_placed({of})")),
    "makes_node": _makes_node,
}


def _kind_of_memory(declaration: Declaration) -> str:
    """Return the kind of what a function allocates (memory/memory.h)."""
    if "managed" in declaration.words:
        return "ORION_MEMORY_MANAGED"
    if "unified" not in declaration.options:
        return "ORION_MEMORY_RESIDENT"
    kind, condition = "orion_unified_kind(device)", declaration.options.get("if")
    return f"{condition} ? {kind} : ORION_MEMORY_RESIDENT" if condition else kind


def memory(function: Function, declaration: Declaration) -> list[str]:
    """Return the body of the wrapper of a function of class memory.

    Raises:
        Invalid: the declaration does not fit the function.
    """
    kind, arguments = only_call(declaration)
    device = declaration.options.get("device")
    joins = [f"orion_context_creating({device});"] if device else []
    if kind == "informs":
        place = device or "orion_memory_device()"
        if "narrow" in declaration.words:  # asks the driver, too
            asks = f"if (answer == CUDA_SUCCESS) orion_narrow_room_is_asked({place}, {arguments})"
            return [f"return PRESENT_THEN({real(function)}, {asks});"]
        return calling(function, on_success(f"orion_room_is_asked({place}, {arguments})"))
    if kind in _OF_POOLS:
        return _OF_POOLS[kind](function, declaration, arguments)
    before: list[str] = []
    place = device or "orion_memory_device()"
    if "ordered" in declaration.words:
        stream = stream_name(function, declaration)
        place = f"orion_memory_device_of((struct orion_stream_name){stream})"
        before = [operation_begin(stream)]
    if kind == "frees":
        releasing = f"const struct orion_release release = orion_memory_releasing({arguments});"
        return [releasing, *before, *calling(function, ["orion_memory_released(&release, result);"])]
    if kind in ("maps", "unmaps"):
        changed = {"maps": "mapped", "unmaps": "unmapped"}[kind]
        return calling(function, [f"orion_memory_{changed}({arguments}, result);"])
    if kind == "retains":
        return calling(function, on_success(f"orion_memory_retained({arguments})"))
    if kind == "shares":
        condition = "answer == CUDA_SUCCESS" + ("" if arguments == "true" else f" && {arguments}")
        return [f"return PRESENT_THEN({real(function)}, if ({condition}) orion_memory_shared());"]
    if kind != "allocates":
        known = f"allocates, {', '.join(_OF_POOLS)}, frees, maps, unmaps, retains, shares or informs"
        raise Invalid(f"{declaration.place}: {kind} is not a detail of class memory; use {known}")
    kind = _kind_of_memory(declaration)
    moved = declaration.options.get("unified")
    allocate = f"kind == ORION_MEMORY_UNIFIED ? {moved} : {real(function)}" if moved else real(function)
    placed = declaration.options.get("placed")
    key = f"result == CUDA_SUCCESS ? {declaration.options['key']} : 0"
    return [
        *joins,
        f"const CUdevice device = {place};",
        f"const uint64_t reserved = {arguments};",
        f"const enum orion_memory_kind kind = {kind};",
        "if (!orion_allocation_may_begin(device, reserved, kind)) return CUDA_ERROR_OUT_OF_MEMORY;",
        "CUresult result = CUDA_ERROR_OUT_OF_MEMORY;",
        "uint64_t until = 0;",
        "if (kind != ORION_MEMORY_RESIDENT || orion_room_ask_first(device, reserved, &until))",
        f"    do result = {allocate};",
        f"    while ({_NO_ROOM} && orion_room_may_come(device, reserved, &until));",
        f"orion_memory_{'reserved' if device else 'allocated'}(device, reserved, kind, {key}, result);",
        *(on_success(f"orion_memory_placed(&{placed}->location, {placed}->type)") if placed else []),
        "return result;",
    ]
