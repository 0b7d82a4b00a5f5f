"""Reads kubeconfigs: the entries that the current context names, and what is wrong with them, said with file and entry.

Read by hand rather than by a model of the whole: a kubeconfig has entries of many clusters, and what is odd about those
that are not used now is nobody's concern.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class Unusable(Exception):
    """A kubeconfig, or an entry of it, cannot be used; the text is a sentence."""


@dataclass(frozen=True)
class Entry:
    """An entry of a kubeconfig.

    Args:
        what: it is: cluster, context or user.
        name: of it.
        file: that it is in; relative paths begin beside it.
        fields: plain.
    """

    what: str
    name: str
    file: Path
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.what} {self.name} in {self.file}"

    def text(self, field: str) -> str:
        """Return a field; empty if it is not there.

        Raises:
            Unusable: it is no text.
        """
        value = self.fields.get(field)
        if value is not None and not isinstance(value, str):
            raise Unusable(f"{field} of {self} is no text")
        return value or ""

    def needed(self, field: str) -> str:
        """Return a field.

        Raises:
            Unusable: it is no text, or not there.
        """
        if not self.text(field):
            raise Unusable(f"{self} has no {field}")
        return self.text(field)

    def content(self, field: str) -> bytes:
        """Return what a file holds that a field names, or the field of that name and -data; empty if there is neither.

        Raises:
            Unusable: the file cannot be read, or the data are no base64.
        """
        if data := self.text(f"{field}-data"):
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError as error:
                raise Unusable(f"{field}-data of {self} is no base64") from error
        if not self.text(field):
            return b""
        path = self.file.parent / self.text(field)
        try:
            return path.read_bytes()
        except OSError as error:
            raise Unusable(f"{field} of {self} names a file that cannot be read: {path} ({error.strerror})") from error


class Kubeconfigs:
    """Some kubeconfigs as one; the first that names something counts, as for kubectl.

    Args:
        files: those that are not there are passed over, unless none is.

    Raises:
        Unusable: one of them cannot be read, or is no kubeconfig.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        there = [file for file in files if file.exists()] or files[:1]
        self._contents = [(file, _read(file)) for file in there]
        self._reported = " and ".join(map(str, there))

    def current(self) -> Entry:
        """Return the current context.

        Raises:
            Unusable: none is chosen, or it is not there.
        """
        name = next((each["current-context"] for _, each in self._contents if each.get("current-context")), "")
        if not name:
            raise Unusable(f"{self._reported} names no current context: choose one with `kubectl config use-context`")
        return self.named("context", name, "current-context")

    def named(self, what: str, name: str, by: object) -> Entry:
        """Return an entry.

        Args:
            what: it is: cluster, context or user.
            name: of it.
            by: what names it, for people.

        Raises:
            Unusable: it is not there.
        """
        for file, content in self._contents:
            for entry in content.get(f"{what}s") or ():
                if isinstance(entry, Mapping) and entry.get("name") == name:
                    fields = entry.get(what) or {}
                    if not isinstance(fields, Mapping):
                        raise Unusable(f"{what} {name} in {file} has no fields")
                    return Entry(what, name, file, fields)
        raise Unusable(f"{self._reported} has no {what} {name}, which {by} names")


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise Unusable(
            f"no API server is known: {file} cannot be read ({error.strerror}); name a kubeconfig with --kubeconfig or "
            "$KUBECONFIG"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise Unusable(f"{file} is no kubeconfig that can be used here: it is no YAML{place}") from error
    lists = ("clusters", "contexts", "users")
    if not isinstance(content, Mapping) or not all(isinstance(content.get(each) or [], list) for each in lists):
        raise Unusable(
            f"{file} is no kubeconfig that can be used here: it has no lists of clusters, contexts and users"
        )
    return content
