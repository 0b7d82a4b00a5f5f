"""Writes the C code of one interposed function from its prototype and its declaration.

Each class of driver functions (see declarations/README.md) has one Python function here that writes its wrappers. A
wrapper first fetches the driver's function. The first fetch in a process fills the hook's table of driver functions, so
the core may use the table.
"""

import re

from orion.errors import Invalid
from orion.hook import own_streams
from orion.hook.cuda_header import Function
from orion.hook.declared import Declaration

_COPIES = {
    "copy_in": "COPY_IN",
    "copy_out": "COPY_OUT",
    "copy": "COPY_DEVICE",
    "memset": "MEMSET",
    "prefetch": "PREFETCH",
}


def _only_call(declaration: Declaration) -> tuple[str, str]:
    if len(declaration.calls) != 1:
        raise Invalid(f"{declaration.place}: {declaration.name} needs exactly one detail with parentheses")
    return next(iter(declaration.calls.items()))


def _stream(function: Function, declaration: Declaration) -> str:
    streams = own_streams.streams_of(function)
    if len(streams) > 1 and "stream" not in declaration.options:
        raise Invalid(f"{declaration.place}: {declaration.name} has the streams {', '.join(streams)}; add stream=NAME")
    handle = declaration.options.get("stream", streams[0] if streams else "NULL")
    return f"{{{handle}, {'true' if function.per_thread else 'false'}}}"


def _identity(declaration: Declaration) -> str:
    kind, arguments = _only_call(declaration)
    if kind == "kernel":
        return "ORION_IDENTITY_UNREAD"
    if kind in _COPIES:
        return f"orion_identity_bytes(ORION_WORK_{_COPIES[kind]}, {arguments})"
    if kind.startswith("orion_"):  # a function of extent.h that handles the direction of the copy
        return f"{kind}({arguments})"
    raise Invalid(f"{declaration.place}: {kind} makes no identity; use a detail of class gate (hook/declarations/)")


def _real(function: Function) -> str:
    return f"real({', '.join(parameter.name for parameter in function.parameters)})"


def _calling(function: Function, after: list[str]) -> list[str]:
    """Return the lines that call the driver's function, then the lines of `after`, then the return statement."""
    return [f"CUresult result = {_real(function)};", *after, "return result;"]


def _launch(declaration: Declaration) -> str:
    """Return the initializer of `.launch`. The core computes a kernel's identity from it when needed."""
    kind, arguments = _only_call(declaration)
    if kind != "kernel":
        return ""
    function, *shape = (each.strip() for each in arguments.split(","))
    names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")
    members = ", ".join(f".{name} = {value}" for name, value in zip(names, shape, strict=True))
    return f", .launch = {{.function = {function}, {members}}}"


def _elsewhere(function: Function, declaration: Declaration) -> list[str]:
    """Return lines that launch on the stream chosen by the core. The call must name its stream exactly once."""
    kind, _ = _only_call(declaration)
    if "stays" in declaration.words:
        return []
    streams = [parameter.name for parameter in function.parameters if parameter.type == "CUstream"]
    if kind != "kernel":
        return []
    if len(streams) == 1:
        return [f"if (work.elsewhere) {streams[0]} = work.elsewhere;"]
    if declaration.options.get("stream") == "config->hStream":
        return [
            "CUlaunchConfig elsewhere;",
            "if (work.elsewhere) elsewhere = *config, elsewhere.hStream = work.elsewhere, config = &elsewhere;",
        ]
    return []


def _gate(function: Function, declaration: Declaration) -> list[str]:
    kind, arguments = _only_call(declaration)
    if kind == "graph":
        stream = _stream(function, declaration)
        return [f"return orion_graph_launch(real, {arguments}, (struct orion_stream_name){stream});"]
    before, after = own_streams.on_own_stream(function, declaration)
    return [*before, *_gated(function, declaration, after)]


def _gated(function: Function, declaration: Declaration, after: list[str]) -> list[str]:
    stream = _stream(function, declaration)
    elsewhere = _elsewhere(function, declaration)
    by_attribute = declaration.options.get("stream") == "config->hStream"
    movable = f", .movable = {'orion_may_move(config)' if by_attribute else 'true'}" if elsewhere else ""
    details = f".stream = {stream}, .identity = {_identity(declaration)}{_launch(declaration)}{movable}"
    before = [f"struct orion_work work = {{{details}}};"]
    proves = declaration.options.get("proves")
    blocks = declaration.options.get("blocks")
    begin = ["orion_work_begin(&work);", *elsewhere]
    if blocks is not None:
        begin += [f"if (orion_work_is_admitted(&work) && {blocks}) orion_work_blocks(&work);"]
    if proves is None:
        return [*before, *begin, *_calling(function, ["orion_work_end(&work, result);", *after])]
    when = "" if proves == "true" else f"if ({proves}) "
    proof = f"{{.scope = ORION_PROOF_STREAM, .blocks = true, .of_itself = true, .stream = {stream}}}"
    return [
        *before,
        f"struct orion_proof proof = {proof};",
        *begin,
        f"{when}orion_proof_begin(&proof);",
        *_calling(function, ["orion_work_end(&work, result);", f"{when}orion_proof_end(&proof, result);", *after]),
    ]


def _submit(function: Function, declaration: Declaration) -> list[str]:
    stream = _stream(function, declaration)
    before = [f"struct orion_work work = {{.stream = {stream}, .identity = ORION_IDENTITY_NONE}};"]
    if not declaration.calls:
        return [*before, "orion_work_begin(&work);", *_calling(function, ["orion_work_end(&work, result);"])]
    kind, event = _only_call(declaration)
    if kind == "await":
        begin = ["orion_work_begin(&work);", f"orion_event_awaited({event}, work.stream);"]
        return [*before, *begin, *_calling(function, ["orion_work_end(&work, result);"])]
    if kind == "uploads":
        launched = f"orion_graph_memory_launched({event}, work.stream, result);"
        return [*before, "orion_work_begin(&work);", *_calling(function, ["orion_work_end(&work, result);", launched])]
    if kind != "record":
        known = "record(event), await(event) or uploads(executable)"
        raise Invalid(f"{declaration.place}: {kind} is not a detail of class submit; use {known}")
    return [
        *before,
        f"struct orion_recording recording = {{.event = {event}, .stream = {stream}}};",
        "orion_work_begin(&work);",
        "orion_event_recording(&recording);",
        *_calling(function, ["orion_event_recorded(&recording, result);", "orion_work_end(&work, result);"]),
    ]


def _synchronise(function: Function, declaration: Declaration) -> list[str]:
    kind, handle = _only_call(declaration)
    scopes = {
        "stream": f".scope = ORION_PROOF_STREAM, .stream = {_stream(function, declaration)}",
        "event": f".scope = ORION_PROOF_EVENT, .event = {handle}",
        "context": f".scope = ORION_PROOF_CONTEXT, .context = {handle}",
    }
    blocks = "true" if "blocks" in declaration.words else "false"
    own = [
        "CUresult own;",
        f"if (orion_redirects(NULL) && orion_synchronised_client({handle}, &own)) return own;",
    ]
    return [
        *(own if kind == "context" else []),
        f"struct orion_proof proof = {{{scopes[kind]}, .blocks = {blocks}}};",
        "orion_proof_begin(&proof);",
        *_calling(function, ["orion_proof_end(&proof, result);"]),
    ]


def _capture(function: Function, declaration: Declaration) -> list[str]:
    change = "ORION_CAPTURE_BEGUN" if "begins" in declaration.words else "ORION_CAPTURE_ENDED"
    return ["orion_capture_changing();", *_calling(function, [f"orion_capture_changed({change}, result);"])]


def _room_may_come(device: str, size: str) -> str:
    """Return the condition under which an allocation is tried again: others leave a full GPU (parking/room.h)."""
    return f"result == CUDA_ERROR_OUT_OF_MEMORY && orion_room_may_come({device}, {size}, &until)"


def _from_pool(function: Function, declaration: Declaration, arguments: str) -> list[str]:
    at, size, pool = (each.strip() for each in arguments.split(","))
    stream = _stream(function, declaration)
    return [
        f"struct orion_pooling pooling = {{.pool = {pool}, .stream = {stream}, .bytes = {size}}};",
        "if (!orion_pool_may_begin(&pooling)) return CUDA_ERROR_OUT_OF_MEMORY;",
        f"struct orion_work work = {{.stream = {stream}, .identity = ORION_IDENTITY_NONE}};",
        "CUresult result;",
        "uint64_t until = 0;",
        f"orion_room_ask_first(pooling.counts ? pooling.device : -1, {size}, &until);",
        "do {",
        "    orion_work_begin(&work);",
        f"    result = {_real(function)};",
        "    orion_work_end(&work, result);",
        f"}} while ({_room_may_come('pooling.counts ? pooling.device : -1', size)});",
        f"return orion_pool_ended(&pooling, {at}, result);",
    ]


def _makes_node(function: Function, _: Declaration, condition: str) -> list[str]:
    condition = "result == CUDA_SUCCESS" + ("" if condition == "true" else f" && {condition}")
    return _calling(function, [f"if ({condition}) orion_graph_memory_begins();"])


_OF_POOLS = {
    "takes": _from_pool,
    "makes_pool": lambda function, _, of: _calling(function, _on_success(f"orion_pool_made({of})")),
    "ends_pool": lambda function, _, of: [f"orion_pool_ending({of});", f"return {_real(function)};"],
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


def _memory(function: Function, declaration: Declaration) -> list[str]:
    kind, arguments = _only_call(declaration)
    device = declaration.options.get("device")
    joins = [f"orion_context_creating({device});"] if device else []
    if kind == "informs":
        inform = f"if (result == CUDA_SUCCESS) orion_memory_info({device or 'orion_memory_device()'}, {arguments});"
        return [*joins, *_calling(function, [inform])]
    if kind in _OF_POOLS:
        return _OF_POOLS[kind](function, declaration, arguments)
    before: list[str] = []
    after: list[str] = []
    place = device or "orion_memory_device()"
    if "ordered" in declaration.words:
        stream = _stream(function, declaration)
        place = f"orion_memory_device_of((struct orion_stream_name){stream})"
        before = [f"struct orion_work work = {{.stream = {stream}, .identity = ORION_IDENTITY_NONE}};"]
        before += ["orion_work_begin(&work);"]
        after = ["orion_work_end(&work, result);"]
    if kind == "frees":
        releasing = f"const struct orion_release release = orion_memory_releasing({arguments});"
        return [releasing, *before, *_calling(function, [*after, "orion_memory_released(&release, result);"])]
    if kind in ("maps", "unmaps", "retains"):
        changed = {"maps": "mapped", "unmaps": "unmapped", "retains": "retained"}[kind]
        return _calling(function, [f"orion_memory_{changed}({arguments}, result);"])
    if kind == "shares":
        return _calling(function, _on_success("orion_memory_shared()"))
    if kind != "allocates":
        known = f"allocates, {', '.join(_OF_POOLS)}, frees, maps, unmaps, retains, shares or informs"
        raise Invalid(f"{declaration.place}: {kind} is not a detail of class memory; use {known}")
    kind = _kind_of_memory(declaration)
    moved = declaration.options.get("unified")
    allocate = f"kind == ORION_MEMORY_UNIFIED ? {moved} : {_real(function)}" if moved else _real(function)
    key = f"result == CUDA_SUCCESS ? {declaration.options['key']} : 0"
    return [
        *joins,
        f"const CUdevice device = {place};",
        f"const uint64_t reserved = {arguments};",
        f"const enum orion_memory_kind kind = {kind};",
        "if (!orion_allocation_may_begin(device, reserved, kind)) return CUDA_ERROR_OUT_OF_MEMORY;",
        "CUresult result;",
        "uint64_t until = 0;",
        "orion_room_ask_first(device, reserved, &until);",
        f"do result = {allocate};",
        f"while ({_room_may_come('device', 'reserved')});",
        f"orion_memory_reserved(device, reserved, kind, {key}, result);",
        "return result;",
    ]


def _creates_context(function: Function, kind: str, device: str) -> list[str]:
    return [
        f"orion_context_creating({device});",
        "CUresult result;",
        "struct orion_context_room room = {0};",
        f"do result = {_real(function)};",
        f"while (result == CUDA_ERROR_OUT_OF_MEMORY && orion_room_for_context({device}, &room));",
        f"orion_room_for_context_ends({device}, &room);",
        *([f"orion_primary_retained({device}, result);"] if kind == "retains_primary" else []),
        "return result;",
    ]


def _creates_stream(function: Function, priority: str) -> list[str]:
    if priority != "NULL":
        return [f"{priority} = orion_stream_priority({priority});", f"return {_real(function)};"]
    arguments = ", ".join(parameter.name for parameter in function.parameters)
    return [
        "const int priority = orion_stream_priority(0);",
        "if (priority != 0 && orion_driver.cuStreamCreateWithPriority)",
        f"    return orion_driver.cuStreamCreateWithPriority({arguments}, priority);",
        f"return {_real(function)};",
    ]


def _on_success(call: str) -> list[str]:
    return [f"if (result == CUDA_SUCCESS) {call};"]


def _sets_node(arguments: str) -> str:
    """Return the call that reports new parameters of a node: `executable, node, type, parameters`."""
    executable, node, kind, parameters = (each.strip() for each in arguments.split(","))
    if kind == "ANY":
        return f"orion_graph_set_any({executable}, {node}, {parameters})"
    return f"orion_graph_set({executable}, {node}, CU_GRAPH_NODE_TYPE_{kind}, {parameters})"


def _lifetime(function: Function, declaration: Declaration) -> list[str]:
    kind, handle = _only_call(declaration)
    if kind == "creates_stream":
        return _creates_stream(function, handle)
    if kind in ("creates_context", "retains_primary"):
        return _creates_context(function, kind, handle)
    around: dict[str, tuple[list[str], list[str]]] = {
        "releases_primary": (
            [f"const bool may_end = orion_primary_releasing({handle});"],
            ["if (may_end) orion_context_ended();"],
        ),
        "ends_context": ([f"orion_context_ending({handle});"], ["orion_context_ended();"]),
        "ends_green": ([f"orion_green_ending({handle});"], ["orion_context_ended();"]),
        "ends_primary": ([f"orion_primary_ending({handle});"], ["orion_context_ended();"]),
        "ends_stream": ([f"orion_stream_ending({handle});"], []),
        "ends_event": ([f"orion_event_ending({handle});"], []),
        "ends_code": (["orion_code_ending();"], []),
        "makes_graph": (
            [],
            [*_on_success(f"orion_graph_launch_made({handle})"), *_on_success(f"orion_graph_copy_made({handle})")],
        ),
        "updates_graph": ([], _on_success(f"orion_graph_updated({handle})")),
        "sets_node": ([], _on_success(_sets_node(handle)) if kind == "sets_node" else []),
        "sets_child": ([], _on_success(f"orion_graph_set_child({handle})")),
        "enables_node": ([], _on_success(f"orion_graph_copy_enabled({handle})")),
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
    return [*before, *_calling(function, after)]


def _null_pointers(function: Function, declaration: Declaration) -> list[str]:
    """Return lines that pass the call on unchanged if a pointer that the wrapper would dereference is null."""
    options = [declaration.options.get(option, "") for option in ("stream", "proves", "blocks")]
    details = [*declaration.calls.values(), *options]
    followed = {name for detail in details for name in re.findall(r"(\w+)->", detail)}
    followed |= {arguments for kind, arguments in declaration.calls.items() if kind.startswith("orion_copy_")}
    return [f"if (!{name}) return {_real(function)};" for name in sorted(followed)]


def _about_stream(function: Function, declaration: Declaration) -> list[str]:
    if not own_streams.streams_of(function):
        raise Invalid(f"{declaration.place}: {declaration.name} has no stream")
    return [f"return {_real(function)};"]


def _quiet(function: Function, _: Declaration) -> list[str]:
    return [
        "struct orion_quiet quiet;",
        "orion_quiet_begin(&quiet);",
        *_calling(function, ["orion_quiet_end(&quiet);"]),
    ]


_BODIES = {
    "gate": _gate,
    "submit": _submit,
    "synchronise": _synchronise,
    "capture": _capture,
    "memory": _memory,
    "lifetime": _lifetime,
    "stream": _about_stream,
    "quiet": _quiet,
}


def wrapper(function: Function, declaration: Declaration) -> str:
    """Return the definition of the function that interposes the driver's function.

    Raises:
        Invalid: the declaration does not fit the function.
    """
    parameters = ", ".join(map(str, function.parameters)) or "void"
    body = [
        *_null_pointers(function, declaration),
        *own_streams.redirected(function, declaration),
        *_BODIES[declaration.kind](function, declaration),
    ]
    lines = "\n".join(f"    {line}" for line in body)
    opening = f"INTERPOSED({function.name}, ({parameters}))\n{{\n    REAL({function.name});\n"
    return f"{own_streams.declared_ahead(function, declaration)}{opening}{lines}\n}}\n"
