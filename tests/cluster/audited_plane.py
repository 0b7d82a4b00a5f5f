"""A control plane that records the requests of one user: does the user use all rights that a file of roles gives?"""

import contextlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from testbed import binaries
from testbed.control_plane import ControlPlane
from tests.cluster.conftest import client_for

Right = tuple[str, str, str]
""" Group, resource with its subresource, verb. """


class AuditedPlane:
    """A control plane under an audit of one user. `kubeconfig` is that user's, `api` is the administrator's."""

    def __init__(self, plane: ControlPlane, log: Path, api: client.ApiClient, kubeconfig: Path) -> None:
        self.plane, self.api, self.kubeconfig, self._log = plane, api, kubeconfig, log

    def lines(self) -> list[dict[str, Any]]:
        """Return the recorded requests; the last line may be half written."""
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def asked(self) -> set[Right]:
        """Return the rights that the user's requests used, without the rights that every user has."""
        found = set()
        for line in self.lines():
            reference = line.get("objectRef")
            if reference and "resource" in reference:
                resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
                found.add((reference.get("apiGroup", ""), resource, line["verb"]))
        return found

    def refused(self) -> list[dict[str, Any]]:
        """Return the user's requests that RBAC refused."""
        return [line for line in self.lines() if line["responseStatus"]["code"] == 403]


@contextlib.contextmanager
def audited_plane(user: str, folder: Path) -> Iterator[AuditedPlane]:
    """Run a control plane until the end of the block; `folder` holds its files."""
    log, policy, program = (folder / name for name in ("audit.log", "audit.yaml", "kube-apiserver"))
    rules = {"omitStages": ["RequestReceived"], "rules": [{"level": "Metadata", "users": [user]}, {"level": "None"}]}
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **rules}))
    programs = dict(binaries.find_all())
    options = f"--audit-policy-file={policy} --audit-log-path={log}"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(str(programs["kube-apiserver"]))} "$@" {options}\n')
    program.chmod(0o700)
    plane = ControlPlane(folder / "plane", programs | {"kube-apiserver": program})
    with plane, client_for(plane.access.kubeconfig) as api:
        yield AuditedPlane(plane, log, api, plane.access.kubeconfig_for(user, [], folder / "user.kubeconfig"))


def granted(roles: Path) -> set[Right]:
    """Return all rights that a file of the chart's roles allows."""
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all(roles.read_text())
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
