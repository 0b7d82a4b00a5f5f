"""A control plane that records the requests of the operator, which has the rights that the chart ships."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import api_types
from tests.cluster.audited_plane import AuditedPlane, audited_plane
from tests.cluster.operator_process import ROLE
from tests.cluster.rights import bind

USER = "system:serviceaccount:default:orion-operator"


@contextlib.contextmanager
def audited_operator(folder: Path, *further: Path) -> Iterator[AuditedPlane]:
    """Run the control plane until the end of the block; the files `further` give the operator rights besides."""
    with audited_plane(USER, folder) as plane:
        api_types.establish(plane.api)
        for roles in (ROLE, *further):
            bind(plane.api, roles, USER, "default")
        yield plane
