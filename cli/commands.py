"""The commands of `orion` and their exit statuses.

Every failure prints one sentence on standard error. Exit status: 0 success, 1 failure, 2 a wrong option or value;
`orion run` exits with the program's status. Rejected: Typer's error panel, which scripts cannot read.
"""

import copy
import errno
import os
import sys
from typing import Annotated

import typer

from orion.cli import (
    agent,
    await_claims,
    bench,
    certificates,
    cleanup,
    demo,
    device_plugin,
    doctor,
    dra_driver,
    explain,
    launch,
    loadgen,
    mps_daemon,
    operator,
    park,
    plan,
    policy,
    profile,
    run,
    simulate,
    stop,
    top,
    trace,
    webhook,
)
from orion.cli.extras import sentence as sentence_of_missing
from orion.errors import OrionError

app = typer.Typer(
    name="orion",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with [bold]orion demo[/bold] (no GPU needed), then [bold]orion doctor[/bold] on a GPU machine.",
)


def version() -> str:
    """Return the installed package's version."""
    from importlib import metadata

    try:
        return metadata.version("orion-gpu")
    except metadata.PackageNotFoundError:
        return "0+checkout"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"orion {version()}")
        raise typer.Exit


@app.callback()
def orion(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Share one NVIDIA GPU: a latency-critical process keeps its speed, best-effort processes get the rest.

    Start a program with [bold]orion run[/bold]; the program needs no change.

    High-priority ([bold]hp[/bold]) work goes first; best-effort ([bold]be[/bold]) work runs while hp is idle.
    """


_MACHINE, _MEASURING, _PLANNING, _CLUSTER, _SERVICES = (
    "On this machine",
    "Measure",
    "Plan",
    "On Kubernetes",
    "Services",
)

# Arguments after the program belong to the program, with or without the --.
app.command(name="run", context_settings={"allow_interspersed_args": False}, rich_help_panel=_MACHINE)(run.run)
app.command(name="top", rich_help_panel=_MACHINE)(top.top)
app.add_typer(policy.app, name="policy", rich_help_panel=_MACHINE)
app.command(name="park", rich_help_panel=_MACHINE)(park.park)
app.command(name="unpark", rich_help_panel=_MACHINE)(park.unpark)
app.command(name="stop", rich_help_panel=_MACHINE)(stop.stop)
app.command(name="doctor", rich_help_panel=_MACHINE)(doctor.doctor)
app.command(name="demo", rich_help_panel=_MACHINE)(demo.demo)
app.command(name="launch", rich_help_panel=_MEASURING)(launch.launch)
app.add_typer(profile.app, name="profile", rich_help_panel=_MEASURING)
app.add_typer(bench.app, name="bench", rich_help_panel=_MEASURING)
app.command(name="loadgen", rich_help_panel=_MEASURING)(loadgen.loadgen)
app.command(name="plan", rich_help_panel=_PLANNING)(plan.plan)
app.add_typer(simulate.app, name="simulate", rich_help_panel=_PLANNING)
app.add_typer(trace.app, name="trace", rich_help_panel=_PLANNING)
app.add_typer(explain.app, name="explain", rich_help_panel=_CLUSTER)
app.add_typer(certificates.app, name="certificates", rich_help_panel=_CLUSTER)
app.command(name="await-claims", rich_help_panel=_CLUSTER)(await_claims.await_claims)
app.command(name="cleanup", rich_help_panel=_CLUSTER)(cleanup.cleanup)
app.command(name="agent", rich_help_panel=_SERVICES)(agent.agent)
app.command(name="device-plugin", rich_help_panel=_SERVICES)(device_plugin.device_plugin)
app.command(name="dra-driver", rich_help_panel=_SERVICES)(dra_driver.dra_driver)
app.command(name="mps-daemon", rich_help_panel=_SERVICES)(mps_daemon.mps_daemon)
app.command(name="operator", rich_help_panel=_SERVICES)(operator.operator)
app.command(name="webhook", rich_help_panel=_SERVICES)(webhook.webhook)


def _line(words: list[str]) -> typer.Typer:
    """Return `app` with only the command that the words begin with: it takes a while to build all commands' options."""
    only = copy.copy(app)
    only.registered_commands = [command for command in app.registered_commands if [command.name] == words[:1]]
    only.registered_groups = [group for group in app.registered_groups if [group.name] == words[:1]]
    return only if only.registered_commands or only.registered_groups else app


def _allowed(error: typer.TyperException) -> str:
    """Return the valid options or commands, for an error about an unknown one; or where a missing word belongs."""
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if hasattr(error, "option_name"):
        shown = [each for each in context.command.params if not getattr(each, "hidden", False)]
        names = [n for p in shown for n in (*p.opts, *p.secondary_opts) if n.startswith("--")]
        return f"; {context.command_path} takes {', '.join([*names, '--help'])}"
    if commands := getattr(context.command, "commands", ()):
        return f"; the commands are {', '.join(commands)}"
    missing = getattr(error, "param", None) if hasattr(error, "param_type") else None
    if getattr(missing, "param_type_name", "") == "argument":
        return f": {' '.join([context.command_path, *context.command.collect_usage_pieces(context)])}"
    return ""


def _sentence(error: typer.TyperException) -> str:
    """Return the error on one line, without the library's standard phrases."""
    sentence = (
        " ".join(error.format_message().split()).replace("Value error, ", "").replace("Input should be", "it must be")
    )
    if sentence.endswith("?"):
        return sentence  # it names the command that was meant
    return sentence and sentence.rstrip(".") + _allowed(error)


def _of_system(error: OSError) -> str:
    """Return an error of the system as a sentence, without its number."""
    named = f"{error.filename}: " if error.filename is not None else ""
    full = ": free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{named}{error.strerror}{full}" if error.strerror else str(error)


def run_line(arguments: list[str] | None) -> int:
    """Run a command line and return its exit status.

    Args:
        arguments: the words after `orion`; None: those of this process.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    status, sentence = _outcome(arguments)
    if arguments is None and (unwritten := _flush()):
        status = status or 1
        if not isinstance(unwritten, BrokenPipeError):
            sentence = sentence or _of_system(unwritten)
    if sentence:
        print(f"orion: {sentence}", file=sys.stderr)
    return status


def _outcome(arguments: list[str] | None) -> tuple[int, str]:
    """Run a command line; return its exit status, and what went wrong."""
    command = typer.main.get_command(_line(sys.argv[1:] if arguments is None else arguments))
    try:
        status = command.main(args=arguments, prog_name="orion", standalone_mode=False)
    except typer.TyperException as error:
        return error.exit_code, _sentence(error)  # empty if a group of commands has shown its help
    except OrionError as error:
        return error.exit_status, str(error)
    except OSError as error:
        return 1, _of_system(error)
    except ModuleNotFoundError as error:
        if missing := sentence_of_missing(error.name or ""):
            return 1, missing
        raise
    return status if isinstance(status, int) else 0, ""


def _flush() -> OSError | None:
    """Write what Python still holds of the output; return why that failed. Python's end would print a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python's end writes it once more
        return error
    return None
