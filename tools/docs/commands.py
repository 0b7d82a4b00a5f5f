"""Checks the commands on pages: it parses them with the programs' own descriptions, and never runs them.

The command line of `orion` itself checks for unknown commands, unknown options, surplus arguments and invalid values.
Targets of `make` must exist in the Makefile, modules of `python -m` must exist, and paths must exist in the checkout.
Words in capitals are placeholders.
"""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typer

from orion.cli.commands import app
from tools.docs import kubernetes, shell
from tools.docs.findings import Finding
from tools.docs.pages import ROOT, Page
from tools.docs.shell import Command

PLACEHOLDER = re.compile(r"<?[A-Z][A-Z0-9_.:/-]*>?")
_LANGUAGES = {"sh", "bash", "console", "yaml"}
OURS = ("measurements", "orion", "testbed", "tests", "tools")


def check(pages: Sequence[Page]) -> tuple[list[Finding], int]:
    """Return the faults in commands, and the number of commands."""
    found, number = [], 0
    for page in pages:
        for command in commands(page):
            if isinstance(command, Finding):
                found.append(command)
                continue
            number += 1
            found += [Finding(page.name, command.line, fault) for fault in faults(command, page.root)]
    return found, number


def commands(page: Page) -> Iterator[Command | Finding]:
    """Yield the commands of a page, in blocks and in sentences; yield a finding for each that cannot be parsed."""
    texts = [
        (*each, True)
        for block in page.blocks
        if not block.info or block.info[0] in _LANGUAGES
        for each in shell.lines(block)
    ]
    texts += [(span.text, span.line, False) for span in page.spans if shell.starts_with_program(span.text)]
    for text, line, whole in texts:
        try:
            yield from list(shell.split(text, line, whole))
        except ValueError as error:
            yield Finding(page.name, line, f"`{text}` cannot be parsed: {error}")


def faults(command: Command, root: Path = ROOT) -> list[str]:
    """Return the faults of a command."""
    program, *words = command.words
    missing = [f"there is no {word}" for word in words if _is_missing(word.partition("::")[0], root)]
    return missing + _faults(program, words, command.whole, root)


def _is_missing(word: str, root: Path) -> bool:
    """Return whether a word looks like a path below an existing folder of the checkout, but does not exist."""
    folder, slash, rest = word.partition("/")
    return bool(folder and slash and rest) and (root / folder).is_dir() and not (root / word).exists()


def _faults(program: str, words: list[str], whole: bool, root: Path) -> list[str]:
    if program == "orion":
        return _orion(words, whole)
    if "--" in words:
        words = words[: words.index("--")]
    if program == "make":
        return _make(words, root)
    if program in ("kubectl", "helm"):
        return kubernetes.faults(program, words, root)
    return _python(words, root) if program.endswith(("python", "python3")) else []


# -- orion -------------------------------------------------------------------------------------------------------------


@cache
def _orion_command() -> Any:
    return typer.main.get_command(app)


def _orion(words: list[str], whole: bool) -> list[str]:
    command, path = _orion_command(), "orion"
    while hasattr(command, "commands"):
        if not words or words[0].startswith("-") or PLACEHOLDER.fullmatch(words[0]):
            return [] if not words else _options(command, path, words[:1])
        if words[0] not in command.commands:
            return [f"`{path}` has no command {words[0]}"]
        path, command, words = f"{path} {words[0]}", command.commands[words[0]], words[1:]
    return _options(command, path, words, whole)


def _options(command: Any, path: str, words: list[str], whole: bool = False) -> list[str]:
    """Return the errors of a command's own parser for these words, and for the values of its options."""
    context = command.context_class(command, info_name=path, **command.context_settings)
    helped = "--help" in words or "-h" in words
    try:
        given, surplus, _ = command.make_parser(context).parse_args([*words])
        for parameter in command.params:
            value = given.get(parameter.name)
            if _texts(value) and not _placeholders(value):
                parameter.get_runtime_param().coerce(value, param=parameter, ctx=context)
    except typer.TyperException as error:
        message = " ".join(error.format_message().split())
        return [] if message.endswith("requires an argument.") and not whole else [f"`{path}`: {message}"]
    if surplus and not command.allow_extra_args and not PLACEHOLDER.fullmatch(words[0]):
        return [f"`{path}` takes no argument {' '.join(surplus)}"]
    missing = [each.name for each in command.params if each.required and not _texts(given.get(each.name))]
    return [f"`{path}` needs {' and '.join(missing)}"] if missing and whole and not helped else []


def _texts(value: object) -> list[str]:
    """Return the values of a parameter that are text."""
    return [each for each in (value if isinstance(value, list | tuple) else [value]) if isinstance(each, str)]


def _placeholders(value: object) -> bool:
    return any(PLACEHOLDER.fullmatch(each) for each in _texts(value))


# -- make and Python ---------------------------------------------------------------------------------------------------


def _make(words: Sequence[str], root: Path) -> list[str]:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = {target for names in re.findall(r"(?m)^([a-z][a-z -]*):", makefile) for target in names.split()}
    asked = [word for word in words if "=" not in word and not word.startswith("-")]
    return [f"the Makefile has no target {target}" for target in asked if target not in targets]


def _python(words: Sequence[str], root: Path) -> list[str]:
    if words[:1] == ["-m"] and len(words) > 1:
        module = words[1]
        exists = _module(module, root) if module.partition(".")[0] in OURS else _installed(module)
        return [] if exists else [f"there is no module {module}"]
    return []


def _module(name: str, root: Path) -> bool:
    place = root.joinpath(*name.removeprefix("orion.").split("."))
    return place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name.partition(".")[0]) is not None
