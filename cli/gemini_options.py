"""The flags of Gemini's two launch scripts, which `orion agent` and `orion run` accept beside their own.

A script that starts Gemini then works with `orion agent` in place of launch-backend.py, and `orion run` in place of
launch-command.py. `--help` hides these flags, and docs/gemini.md describes them. A flag without an effect is reported.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from orion.errors import Invalid

WINDOW_MS = 1_000
""" Limits hold over this time. """
_LONGEST_MS, _SHORTEST_MS = (1.0, 100.0), (0.5, 50.0)
""" Bounds of AgentSettings.longest_turn_ms and shortest_turn_ms. """
_SOCKET = "programs join the agent through a socket in its folder"
_ITSELF = "the agent has its own scheduler"


def _hidden(kind: Any, *flags: str) -> Any:
    return Annotated[kind | None, typer.Option(*flags, hidden=True)]


OF_THE_BACKEND = {
    "programs": Annotated[list[str] | None, typer.Argument(metavar="SCHD PMGR", hidden=True)],
    "schd": _hidden(str, "--schd"),
    "pmgr": _hidden(str, "--pmgr"),
    "ip": _hidden(str, "--ip"),
    "port": _hidden(str, "--port"),
    "config": _hidden(Path, "--config"),
    "base_quota": _hidden(float, "--base_quota", "--base-quota"),
    "min_quota": _hidden(float, "--min_quota", "--min-quota"),
    "window": _hidden(float, "--window"),
}
OF_THE_COMMAND = {
    "name": _hidden(str, "--name"),
    "ip": _hidden(str, "--ip"),
    "port": _hidden(str, "--port"),
    "ipc": _hidden(str, "--ipc"),
    "hook": _hidden(str, "--hook"),
    "timeout": _hidden(str, "--timeout"),
}
_UNNEEDED = {
    "schd": _ITSELF,
    "pmgr": _ITSELF,
    "ip": _SOCKET,
    "port": _SOCKET,
    "ipc": _SOCKET,
    "hook": "`orion run` preloads its own hook",
}


def agent_settings(gemini: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the agent's settings of both kinds of flags, without those that were not given; report the others.

    Args:
        gemini: the flags of launch-backend.py that were given.
        own: the agent's own options that were given.

    Raises:
        Invalid: two flags mean the same, or an argument is none of Gemini's.
    """
    given = dict(own)
    quotas = {"base_quota": ("longest_turn_ms", _LONGEST_MS), "min_quota": ("shortest_turn_ms", _SHORTEST_MS)}
    for name, field in [("config", "resource_config"), *((name, field) for name, (field, _) in quotas.items())]:
        if name in gemini and field in given:
            raise Invalid(f"--{name} and --{field.replace('_', '-')} mean the same: give one of them")
    programs = gemini.get("programs") or []
    if programs and (len(programs) > 2 or not (given.get("resource_config") or "config" in gemini)):
        raise Invalid(f"there is an unexpected argument: {programs[0]!r}; `orion agent --help` lists the options")
    if "config" in gemini:
        given["resource_config"] = gemini["config"]
    for name, (field, bounds) in quotas.items():
        if name in gemini:
            given[field] = _bounded(name, gemini[name], bounds)
    if "window" in gemini:
        held = "and so over a longer window, too" if gemini["window"] >= WINDOW_MS else "not over a shorter one"
        _say(f"--window {gemini['window']:g}: limits hold over {WINDOW_MS} ms, {held}")
    _report([*zip(("schd", "pmgr"), programs, strict=False), *gemini.items()])
    return given


def program_id(gemini: dict[str, Any], own: str) -> str:
    """Return the id by which a program joins, empty for none; report the flags that are not needed.

    Args:
        gemini: the flags of launch-command.py that were given.
        own: the value of --id; empty: not given.

    Raises:
        Invalid: the id is given twice, or a flag cannot be accepted.
    """
    if "name" in gemini and own:
        raise Invalid("--name and --id mean the same: give one of them")
    if "timeout" in gemini:
        seconds = gemini["timeout"]
        raise Invalid(f"--timeout: orion run becomes the program; write `timeout {seconds} orion run ...` instead")
    _report(list(gemini.items()))
    return own or str(gemini.get("name", ""))


def _bounded(name: str, value: float, bounds: tuple[float, float]) -> float:
    least, most = bounds
    if not value > 0:
        raise Invalid(f"--{name} cannot be {value:g}: give milliseconds")
    bounded = min(max(value, least), most)
    if bounded != value:
        _say(f"--{name} {value:g}: turns have {least:g} to {most:g} ms, so {bounded:g} ms are used")
    return bounded


def _report(given: list[tuple[str, Any]]) -> None:
    for name, _ in given:
        if name in _UNNEEDED:
            _say(f"{name} is not needed: {_UNNEEDED[name]}")


def _say(what: str) -> None:
    typer.echo(f"orion: {what}", err=True)
