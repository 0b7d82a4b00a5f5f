"""Access to a running control plane: its address, its authority, a kubeconfig for any user.

`Access` reads only the control plane's folder, so processes that did not start the control plane can use it too.
"""

import base64
import http.client
import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from testbed.authority import Authority

ADMINISTRATORS = "system:masters"  # members bypass RBAC


class Access:
    """Access to the control plane whose files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = (folder / "url").read_text()
        self.authority = Authority(folder / "authority")
        self.kubeconfig = folder / "kubeconfig"  # the administrator's

    @classmethod
    def create(cls, folder: Path, url: str) -> "Access":
        """Make the files of a control plane that will listen at `url`."""
        Authority(folder / "authority")
        (folder / "url").write_text(url)
        access = cls(folder)
        access.authority.client("orion-administrator", [ADMINISTRATORS]).write(folder / "authority", "administrator")
        access.kubeconfig_for("orion-administrator", [ADMINISTRATORS], access.kubeconfig)
        return access

    def kubeconfig_for(self, user: str, groups: Sequence[str], path: Path, namespace: str = "default") -> Path:
        """Write a kubeconfig for a user with a client certificate; RBAC decides what that user may do.

        A service account is the user `system:serviceaccount:NAMESPACE:NAME`.
        """
        issued = self.authority.client(user, groups)
        identity = {"client-certificate-data": _encoded(issued.certificate), "client-key-data": _encoded(issued.key)}
        return self._write(user, identity, path, namespace)

    def kubeconfig_with(self, token: str, path: Path) -> Path:
        """Write a kubeconfig for the owner of a token."""
        return self._write("owner", {"token": token}, path, "default")

    def _write(self, user: str, identity: dict[str, str], path: Path, namespace: str) -> Path:
        cluster = {"server": self.url, "certificate-authority-data": _encoded(self.authority.certificate)}
        context = {"cluster": "orion", "user": user, "namespace": namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "orion", "cluster": cluster}],
            "users": [{"name": user, "user": identity}],
            "contexts": [{"name": "orion", "context": context}],
            "current-context": "orion",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1))  # JSON is YAML
        return path

    def get(self, path: str, timeout: float = 5) -> int:
        """Return the HTTP status of a GET by the administrator.

        Raises:
            OSError: the API server does not answer (yet).
        """
        return self._get(path, timeout)[0]

    def read(self, path: str, timeout: float = 5) -> Any:
        """Return the object of a GET by the administrator, or None if there is none.

        Raises:
            OSError: the API server does not answer (yet).
        """
        status, body = self._get(path, timeout)
        return json.loads(body) if status == 200 else None

    def _get(self, path: str, timeout: float) -> tuple[int, bytes]:
        context = ssl.create_default_context(cafile=str(self.authority.certificate_path))
        administrator = self.folder / "authority" / "administrator"
        context.load_cert_chain(administrator.with_suffix(".crt"), administrator.with_suffix(".key"))
        address = urlsplit(self.url)
        connection = http.client.HTTPSConnection(str(address.hostname), address.port, timeout=timeout, context=context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def _encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
