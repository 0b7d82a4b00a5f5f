"""Reads the entries of kubeconfigs that the current context names; errors name the file and the entry.

There is no model of a whole kubeconfig. A kubeconfig has entries of many clusters, and an error in an entry that is not
used must have no effect.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orion.errors import NotFound


class NoCluster(NotFound):
    """No API server is configured, or its kubeconfig cannot be used."""


@dataclass(frozen=True)
class Entry:
    """An entry of a kubeconfig.

    Args:
        what: the entry's kind: cluster, context or user.
        name: the entry's name.
        file: the kubeconfig that contains the entry; relative paths in the entry are relative to the file's folder.
        fields: the entry's fields, as parsed from YAML.
    """

    what: str
    name: str
    file: Path
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.what} {self.name} in {self.file}"

    def text(self, field: str) -> str:
        """Return a field; empty if it is absent.

        Raises:
            NoCluster: the field is not text.
        """
        value = self.fields.get(field)
        if value is not None and not isinstance(value, str):
            raise NoCluster(f"{field} of {self} is not text")
        return value or ""

    def needed(self, field: str) -> str:
        """Return a field.

        Raises:
            NoCluster: the field is absent or not text.
        """
        if not self.text(field):
            raise NoCluster(f"{self} has no {field}")
        return self.text(field)

    def content(self, field: str) -> bytes:
        """Return the data in the field `field`-data, else those in the file that `field` names, else nothing.

        Raises:
            NoCluster: the file cannot be read, or the data are not base64.
        """
        if data := self.text(f"{field}-data"):
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError as error:
                raise NoCluster(f"{field}-data of {self} is not base64") from error
        if not self.text(field):
            return b""
        path = self.file.parent / self.text(field)
        try:
            return path.read_bytes()
        except OSError as error:
            raise NoCluster(f"{field} of {self} names a file that cannot be read: {path} ({error.strerror})") from error


class Kubeconfigs:
    """Several kubeconfigs, merged as kubectl does: the first file that has a value wins.

    Args:
        files: missing files are skipped, but at least one must exist.

    Raises:
        NoCluster: a file cannot be read, or is not a kubeconfig.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        existing = [file for file in files if file.exists()] or files[:1]
        self._contents = [(file, _read(file)) for file in existing]
        self._names = " and ".join(map(str, existing))

    def current(self) -> Entry:
        """Return the current context.

        Raises:
            NoCluster: there is no current context, or no context of that name.
        """
        name = next((each["current-context"] for _, each in self._contents if each.get("current-context")), "")
        if not name:
            raise NoCluster(f"{self._names} sets no current context: choose one with `kubectl config use-context`")
        return self.named("context", name, "current-context")

    def named(self, what: str, name: str, by: object) -> Entry:
        """Return an entry.

        Args:
            what: the entry's kind: cluster, context or user.
            name: the entry's name.
            by: the entry that refers to the returned entry, for error messages.

        Raises:
            NoCluster: there is no such entry.
        """
        for file, content in self._contents:
            for entry in content.get(f"{what}s") or ():
                if isinstance(entry, Mapping) and entry.get("name") == name:
                    fields = entry.get(what) or {}
                    if not isinstance(fields, Mapping):
                        raise NoCluster(f"{what} {name} in {file} has no fields")
                    return Entry(what, name, file, fields)
        raise NoCluster(f"{self._names} has no {what} {name}, which {by} names")


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise NoCluster(
            f"no API server is known: {file} cannot be read ({error.strerror}); name a kubeconfig with --kubeconfig or "
            "$KUBECONFIG"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise NoCluster(f"{file} is not a usable kubeconfig: it is not YAML{place}") from error
    lists = ("clusters", "contexts", "users")
    if not isinstance(content, Mapping) or not all(isinstance(content.get(each) or [], list) for each in lists):
        raise NoCluster(f"{file} is not a usable kubeconfig: it has no lists of clusters, contexts and users")
    return content
