"""A TCP proxy before an API server. A test can cut it: connections end, and new ones are refused for a time."""

from pathlib import Path
from urllib.parse import urlsplit

from tests.cluster.forwarder import Forwarder, Target


class CutProxy(Forwarder):
    """Forwards a port of loopback to an API server, until the end of a block."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (str(target.hostname), int(target.port or 443))
        self._whole = True
        super().__init__(self._choose_target)

    @property
    def url(self) -> str:
        """The URL at which the proxy listens."""
        return f"https://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._whole = False
        self.end_connections()

    def fix(self) -> None:
        """Accept connections again."""
        self._whole = True

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """Write a kubeconfig that uses this proxy."""
        url = f"https://{self._target[0]}:{self._target[1]}"
        path.write_text(original.read_text().replace(url, self.url))
        path.chmod(0o600)
        return path

    def _choose_target(self) -> Target | None:
        return self._target if self._whole else None
