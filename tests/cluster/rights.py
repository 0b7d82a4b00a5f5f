"""Gives the users of tests the rights of the chart's roles."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client


def bind(
    api: client.ApiClient,
    roles: Path,
    user: str,
    namespace: str,
    change: Callable[[dict[str, Any]], None] = lambda _: None,
) -> None:
    """Give a user exactly the rights of a file of the chart's roles.

    Args:
        api: the administrator's client.
        roles: the file. Each role is created under a name that contains the user's.
        user: the user's name; that of a service account is `system:serviceaccount:NAMESPACE:NAME`.
        namespace: where a Role applies.
        change: called with each role before the role is created.
    """
    rights = client.RbacAuthorizationV1Api(api)
    subjects = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    for role in yaml.safe_load_all(roles.read_text()):
        change(role)
        metadata = {"name": f"{role['metadata']['name']}-{user.replace(':', '-')}"}
        reference = {"kind": role["kind"], "apiGroup": "rbac.authorization.k8s.io", **metadata}
        binding = {"metadata": metadata, "roleRef": reference, "subjects": subjects}
        if role["kind"] == "ClusterRole":
            rights.create_cluster_role(role | {"metadata": metadata})
            rights.create_cluster_role_binding(binding)
        else:
            rights.create_namespaced_role(namespace, role | {"metadata": metadata})
            rights.create_namespaced_role_binding(namespace, binding)
