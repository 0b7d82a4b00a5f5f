"""The door: `orion` and its commands.

Every failure is one sentence on standard error. Exit status: 0 done, 1 could not be done, 2 a wrong flag or value, 130
ended by Ctrl-C; `orion run` has that of the program. Typer's own error panel was refused: a script reads sentences.
"""

import sys
from importlib import metadata
from typing import Annotated

import typer

from orion.cli import (
    agent,
    bench,
    certificates,
    cleanup,
    demo,
    device_plugin,
    doctor,
    explain,
    launch,
    mps_daemon,
    operator,
    policy,
    profile,
    run,
    top,
    webhook,
)
from orion.cli.errors import Refused

app = typer.Typer(
    name="orion",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with [bold]orion demo[/bold] (no GPU needed), then [bold]orion doctor[/bold] on a GPU machine.",
)


def version() -> str:
    """Return the installed package's version."""
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
    """Share one NVIDIA GPU: a latency-critical process keeps its speed, best-effort ones get the rest.

    A program joins by being started under [bold]orion run[/bold]; it needs no change.

    High-priority ([bold]hp[/bold]) work goes ahead; best-effort ([bold]be[/bold]) work runs while hp is idle.
    """


# What follows the program is the program's own, with or without the --.
app.command(name="run", context_settings={"allow_interspersed_args": False})(run.run)
app.command(name="launch")(launch.launch)
app.command(name="top")(top.top)
app.command(name="doctor")(doctor.doctor)
app.command(name="demo")(demo.demo)
app.command(name="agent")(agent.agent)
app.command(name="device-plugin")(device_plugin.device_plugin)
app.command(name="mps-daemon")(mps_daemon.mps_daemon)
app.command(name="operator")(operator.operator)
app.command(name="webhook")(webhook.webhook)
app.command(name="cleanup")(cleanup.cleanup)
app.add_typer(certificates.app, name="certificates")
app.add_typer(explain.app, name="explain")
app.add_typer(policy.app, name="policy")
app.add_typer(bench.app, name="bench")
app.add_typer(profile.app, name="profile")


def _allowed(error: typer.TyperException) -> str:
    """Return what would have been right, for an error that names an unknown option or command."""
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if hasattr(error, "option_name"):
        names = [n for p in context.command.params for n in (*p.opts, *p.secondary_opts) if n.startswith("--")]
        return f"; {context.command_path} takes {', '.join([*names, '--help'])}"
    if "No such command" in error.format_message():
        return f"; the commands are {', '.join(context.command.commands)}"
    return ""


def _sentence(error: typer.TyperException) -> str:
    """Return the error on one line, without the words of the library that found it."""
    told = (
        " ".join(error.format_message().split()).replace("Value error, ", "").replace("Input should be", "it must be")
    )
    return told.rstrip(".") + _allowed(error)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    command = typer.main.get_command(app)
    try:
        status = command.main(args=arguments, prog_name="orion", standalone_mode=False)
    except typer.TyperException as error:
        if sentence := _sentence(error):  # empty where a group of commands has shown its help
            print(f"orion: {sentence}", file=sys.stderr)
        return error.exit_code
    except Refused as refusal:
        print(f"orion: {refusal}", file=sys.stderr)
        return refusal.status
    except KeyboardInterrupt:
        return 130
    return status if isinstance(status, int) else 0
