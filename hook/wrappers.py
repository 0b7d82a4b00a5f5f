"""Writes the C code of one interposed function from its prototype and its declaration.

Each class of driver functions (see declarations/README.md) has one Python function that writes its wrappers: here, in
`lifetime_wrappers.py` or in `memory_wrappers.py`. A wrapper first fetches the driver's function. The first fetch in a
process fills the hook's table of driver functions, so the core may use the table.
"""

import re

from orion.errors import Invalid
from orion.hook import own_streams
from orion.hook.cuda_header import Function
from orion.hook.declared import Declaration
from orion.hook.lifetime_wrappers import lifetime
from orion.hook.memory_wrappers import memory
from orion.hook.wrapper_parts import (
    attribute_of,
    calling,
    on_success,
    only_call,
    operation_begin,
    operation_end,
    real,
    stream_name,
)

_COPIES = {
    "copy_in": "COPY_IN",
    "copy_out": "COPY_OUT",
    "copy": "COPY_DEVICE",
    "memset": "MEMSET",
    "prefetch": "PREFETCH",
}


def _identity(declaration: Declaration) -> str:
    kind, arguments = only_call(declaration)
    if kind == "kernel":
        return "ORION_IDENTITY_UNREAD"
    if kind in _COPIES:
        return f"orion_identity_bytes(ORION_WORK_{_COPIES[kind]}, {arguments})"
    if kind.startswith("orion_"):  # a function of extent.h that handles the direction of the copy
        return f"{kind}({arguments})"
    raise Invalid(f"{declaration.place}: {kind} makes no identity; use a detail of class gate (hook/declarations/)")


def _launch(declaration: Declaration) -> str:
    """Return the initializer of `.launch`. The core computes a kernel's identity from it when needed."""
    kind, arguments = only_call(declaration)
    if kind != "kernel":
        return ""
    function, *shape = (each.strip() for each in arguments.split(","))
    names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")
    members = ", ".join(f".{name} = {value}" for name, value in zip(names, shape, strict=True))
    return f", .launch = {{.function = {function}, {members}}}"


def _elsewhere(function: Function, declaration: Declaration) -> list[str]:
    """Return lines that launch on the stream chosen by the core. The call must name its stream exactly once."""
    kind, _ = only_call(declaration)
    if "stays" in declaration.words:
        return []
    streams = [parameter.name for parameter in function.parameters if parameter.type == "CUstream"]
    if kind != "kernel":
        return []
    if len(streams) == 1:
        return [f"if (work.elsewhere.stream) {streams[0]} = work.elsewhere.stream;"]
    if declaration.options.get("stream") == "config->hStream":
        return [
            "CUlaunchConfig moved;",
            "if (work.elsewhere.stream) moved = *config, moved.hStream = work.elsewhere.stream, config = &moved;",
        ]
    return []


def _attributes(function: Function, declaration: Declaration) -> list[str]:
    """Return lines that note the attributes of a launch, and give it the priority of its client's work."""
    if declaration.options.get("stream") != "config->hStream":
        return []
    arguments = f"config, {'true' if function.per_thread else 'false'}, &changed"
    return [
        "struct orion_changed_launch changed;",
        "changed.answered = NULL;",
        f"if (orion_launch_noted(config)) config = orion_launch_with_priority({arguments});",
    ]


def _gate(function: Function, declaration: Declaration) -> list[str]:
    kind, arguments = only_call(declaration)
    if kind == "graph":
        stream = stream_name(function, declaration)
        return [f"return orion_graph_launch(real, {arguments}, (struct orion_stream_name){stream});"]
    before, after = own_streams.on_own_stream(function, declaration)
    return [*before, *_gated(function, declaration, after)]


def _gated(function: Function, declaration: Declaration, after: list[str]) -> list[str]:
    stream = stream_name(function, declaration)
    elsewhere = _elsewhere(function, declaration)
    by_attribute = declaration.options.get("stream") == "config->hStream"
    movable = f", .movable = {'orion_may_move(config)' if by_attribute else 'true'}" if elsewhere else ""
    details = f".stream = {stream}, .identity = {_identity(declaration)}{_launch(declaration)}{movable}"
    before = [f"struct orion_work work = {{{details}}};"]
    proves = declaration.options.get("proves")
    blocks = declaration.options.get("blocks")
    begin = [*_attributes(function, declaration), "orion_work_begin(&work);", *elsewhere]
    if blocks is not None:
        begin += [f"if (orion_work_is_admitted(&work) && {blocks}) orion_work_blocks(&work);"]
    if by_attribute:
        after = ["if (changed.answered != NULL) orion_launch_answers(&changed);", *after]
    settles = declaration.options.get("settles")
    if settles is not None:
        after = [f"if (orion_work_is_admitted(&work) && {settles}) orion_work_settles(&work);", *after]
    if proves is None:
        return [*before, *begin, *calling(function, ["orion_work_end(&work, result);", *after])]
    when = "" if proves == "true" else f"if ({proves}) "
    proof = f"{{.scope = ORION_PROOF_STREAM, .blocks = true, .of_itself = true, .stream = {stream}}}"
    return [
        *before,
        f"struct orion_proof proof = {proof};",
        *begin,
        f"{when}orion_proof_begin(&proof);",
        *calling(function, ["orion_work_end(&work, result);", f"{when}orion_proof_end(&proof, result);", *after]),
    ]


def _submit(function: Function, declaration: Declaration) -> list[str]:
    stream = stream_name(function, declaration)
    begin = operation_begin(stream)
    if not declaration.calls:
        return [begin, *calling(function, [operation_end(stream)])]
    kind, event = only_call(declaration)
    if kind == "await":
        awaited = f"orion_event_awaited({event}, (struct orion_stream_name){stream});"
        return [awaited, *calling(function, [operation_end(stream)])]
    if kind == "uploads":
        launched = f"orion_graph_memory_launched({event}, (struct orion_stream_name){stream}, result);"
        return [begin, *calling(function, [launched])]
    if kind != "record":
        known = "record(event), await(event) or uploads(executable)"
        raise Invalid(f"{declaration.place}: {kind} is not a detail of class submit; use {known}")
    external = f", .external = {declaration.options['external']}" if "external" in declaration.options else ""
    return [
        f"struct orion_recording recording = {{.event = {event}, .stream = {stream}{external}}};",
        "orion_event_recording(&recording);",
        *calling(function, ["orion_event_recorded(&recording, result);"]),
    ]


def _synchronise(function: Function, declaration: Declaration) -> list[str]:
    kind, handle = only_call(declaration)
    scopes = {
        "stream": f".scope = ORION_PROOF_STREAM, .stream = {stream_name(function, declaration)}",
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
        *calling(function, ["orion_proof_end(&proof, result);"]),
    ]


def _capture(function: Function, declaration: Declaration) -> list[str]:
    change = "ORION_CAPTURE_BEGUN" if "begins" in declaration.words else "ORION_CAPTURE_ENDED"
    stream = f"(struct orion_stream_name){stream_name(function, declaration)}"
    return ["orion_capture_changing();", *calling(function, [f"orion_capture_changed({change}, {stream}, result);"])]


def _null_pointers(function: Function, declaration: Declaration) -> list[str]:
    """Return lines that pass the call on unchanged if a pointer that the wrapper would dereference is null."""
    options = [declaration.options.get(option, "") for option in ("stream", "proves", "blocks")]
    details = [*declaration.calls.values(), *options]
    followed = {name for detail in details for name in re.findall(r"(\w+)->", detail)}
    followed |= {arguments for kind, arguments in declaration.calls.items() if kind.startswith("orion_copy_")}
    return [f"if (!{name}) return {real(function)};" for name in sorted(followed)]


def _about_stream(function: Function, declaration: Declaration) -> list[str]:
    if not own_streams.streams_of(function):
        raise Invalid(f"{declaration.place}: {declaration.name} has no stream")
    if "copies_attributes" in declaration.words:
        stream = f"(struct orion_stream_name){stream_name(function, declaration)}"
        return calling(function, on_success(f"orion_attributes_copied({stream})"))
    if "sets_attribute" in declaration.calls:
        stream = f"(struct orion_stream_name){stream_name(function, declaration)}"
        return [*attribute_of("stream", f"{stream}, ", declaration), f"return {real(function)};"]
    return [f"return {real(function)};"]


def _of_module(declaration: Declaration) -> str:
    return f"ORION_CODE_OF_MODULE, {declaration.calls.get('once', 'NULL, NULL')}"


def _quiet(function: Function, declaration: Declaration) -> list[str]:
    of_library = declaration.calls.get("once_in_library")
    looked_up = f"ORION_CODE_OF_LIBRARY, {of_library}" if of_library else _of_module(declaration)
    managed = on_success("orion_memory_managed()") if "managed" in declaration.words else []
    return [
        "struct orion_quiet quiet;",
        f"orion_quiet_begin(&quiet, {looked_up});",
        *calling(function, ["orion_quiet_end(&quiet, result);", *managed]),
    ]


_BODIES = {
    "gate": _gate,
    "submit": _submit,
    "synchronise": _synchronise,
    "capture": _capture,
    "memory": memory,
    "lifetime": lifetime,
    "stream": _about_stream,
    "quiet": _quiet,
}


_PATCHED = re.compile(r"cuMem[A-Z]")  # hook/src/interposition/patchable.h; not cuMemcpy and cuMemset
_PRESENT = {"submit", "synchronise"}
""" Classes whose calls the driver does not stop while the process is away; of `submit` only a thread's first use. """


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
    if declaration.kind in _PRESENT or "present" in declaration.words:
        body = [line.replace(real(function), f"PRESENT({real(function)})") for line in body]
    lines = "\n".join(f"    {line}" for line in body)
    macro = "PATCHABLE" if _PATCHED.match(function.name) else "INTERPOSED"
    opening = f"{macro}({function.name}, ({parameters}))\n{{\n    REAL({function.name});\n"
    return f"{own_streams.declared_ahead(function, declaration)}{opening}{lines}\n}}\n"
