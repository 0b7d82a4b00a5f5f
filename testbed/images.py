"""Builds container images from files of this machine, without a registry, a container runtime or root.

An image is an OCI archive with one layer. The same files give the same archive, byte for byte: it contains neither
times nor users.
"""

import hashlib
import io
import json
import platform
import re
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

# With this host name the kubelet does not ask a public registry; with a tag it does not pull at every start.
PAUSE = "localhost/orion/pause:1"
SHELL = "localhost/orion/shell:1"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Link:
    """A symbolic link in an image."""

    target: str


Content = Path | bytes | Link


@dataclass(frozen=True)
class Image:
    """An image: its full name with a tag, its files by their paths in the image, and what its containers run.

    A `Path` is a file or folder of this machine, with its mode; a link stands for the file to which it leads. Bytes are
    a file of mode 644. Root owns all files. Parent folders are added automatically.
    """

    name: str
    files: Mapping[str, Content]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    folder: str = "/"

    def write(self, archive: Path) -> Path:
        """Write the archive; return its path."""
        layer = _layer(self.files)
        configuration = _encoded(self._configuration(layer))
        manifest = _encoded(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": _described("application/vnd.oci.image.config.v1+json", configuration),
                "layers": [_described("application/vnd.oci.image.layer.v1.tar", layer)],
            }
        )
        entry = _described("application/vnd.oci.image.manifest.v1+json", manifest)
        entry["annotations"] = {"io.containerd.image.name": self.name}
        members = {
            "oci-layout": _encoded({"imageLayoutVersion": "1.0.0"}),
            "index.json": _encoded({"schemaVersion": 2, "manifests": [entry]}),
        }
        members |= {f"blobs/sha256/{_digest(blob)}": blob for blob in (configuration, manifest, layer)}
        with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
            for path, content in members.items():
                tar.addfile(_header(path, len(content)), io.BytesIO(content))
        return archive

    def _configuration(self, layer: bytes) -> dict[str, object]:
        run: dict[str, object] = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "Env": [f"{name}={value}" for name, value in self.environment.items()],
            "User": self.user,
            "WorkingDir": self.folder,
        }
        return {
            "created": "1970-01-01T00:00:00Z",
            "architecture": architecture(),
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
        }


def architecture() -> str:
    """Return this machine's architecture in the spelling of OCI images."""
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def with_libraries(*programs: Path) -> dict[str, Content]:
    """Return programs of this machine with the loader and the libraries that they need, each at its own path.

    Files that a program opens later by name (plugins, locales) are not included.

    Raises:
        FileNotFoundError: a library is not on this machine.
    """
    files: dict[str, Content] = {}
    for program in programs:
        files[str(program)] = program.resolve()
        reported = subprocess.run(["ldd", program], capture_output=True, text=True)
        if "not found" in reported.stdout:
            raise FileNotFoundError(f"{program}: {reported.stdout}")
        for library in re.findall(r"(/\S+) \(0x", reported.stdout):
            files[library] = Path(library).resolve()
    return files


def shell(busybox: Path, programs: Mapping[str, Content] | None = None) -> Image:
    """Return the image of a shell with busybox's programs. They are static, so they ignore LD_PRELOAD."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    files: dict[str, Content] = {f"/bin/{name}": Link("/bin/busybox") for name in listed if name != "busybox"}
    files |= {"/bin/busybox": busybox, "/etc/passwd": b"root:x:0:0:root:/:/bin/sh\n", "/tmp/.keep": b""}
    return Image(SHELL, {**files, **(programs or {})}, command=("/bin/sh",), environment={"PATH": "/bin:/usr/bin"})


def pause(busybox: Path) -> Image:
    """Return the image of the container that holds a pod's network: it sleeps until SIGTERM."""
    waiting = "trap 'exit 0' TERM INT; sleep 2147483647 & wait"
    return Image(PAUSE, {"/bin/busybox": busybox}, entrypoint=("/bin/busybox", "sh", "-c", waiting))


def _layer(files: Mapping[str, Content]) -> bytes:
    entries = {path: content for given, content in files.items() for path, content in _walked(given, content)}
    folders = {str(above) for path in entries for above in PurePosixPath(path).parents} - {"."}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folders | set(entries)):
            entry = entries.get(path)
            if entry is None:
                tar.addfile(_folder(path))
            elif isinstance(entry, Link):
                link = _header(path, 0)
                link.type, link.linkname = tarfile.SYMTYPE, entry.target
                tar.addfile(link)
            else:
                content = entry if isinstance(entry, bytes) else entry.read_bytes()
                mode = 0o644 if isinstance(entry, bytes) else stat.S_IMODE(entry.stat().st_mode)
                tar.addfile(_header(path, len(content), mode), io.BytesIO(content))
    return buffer.getvalue()


def _walked(given: str, content: Content) -> Iterator[tuple[str, Content]]:
    """Yield the files at or below a path in the image."""
    path = given.strip("/")
    if isinstance(content, Path) and content.is_dir():
        for each in sorted(content.iterdir()):
            inner = Link(str(each.readlink())) if each.is_symlink() else each
            yield from _walked(f"{path}/{each.name}", inner)
    else:
        yield path, content


def _folder(path: str) -> tarfile.TarInfo:
    header = _header(path, 0, 0o1777 if path in ("tmp", "var/tmp") else 0o755)
    header.type = tarfile.DIRTYPE
    return header


def _header(path: str, size: int, mode: int = 0o644) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.size, header.mode, header.mtime = size, mode, 0
    return header


def _encoded(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def _described(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{_digest(blob)}", "size": len(blob)}
