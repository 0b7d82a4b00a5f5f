"""Reads and writes image archives (OCI), so that equal images are equal files.

buildah's own archives contain the time of day and recompress every layer. Here, compressed layers are cached by the
digest of their content, so a change of Orion's code recompresses Orion's layer alone.
"""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True)
class Layer:
    """One layer of an image in the archive.

    Args:
        size: compressed, in bytes.
        uncompressed: in bytes; about the space on a node's disk.
        files: the headers of its files, by path.
    """

    digest: str
    size: int
    uncompressed: int
    files: Mapping[str, tarfile.TarInfo]


class Archive:
    """An image archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entry = json.loads(self._member("index.json"))["manifests"][0]
        self._manifest = json.loads(self._blob(self._entry))
        self.configuration: dict[str, Any] = json.loads(self._blob(self._manifest["config"]))

    @property
    def digest(self) -> str:
        """The digest of the manifest, by which a registry identifies the image."""
        return str(self._entry["digest"])

    @property
    def name(self) -> str:
        """The name under which a container runtime imports the image."""
        return str(self._entry["annotations"]["io.containerd.image.name"])

    @property
    def size(self) -> int:
        """The sum of the compressed layers, in bytes: what a node downloads."""
        return sum(int(each["size"]) for each in self._manifest["layers"])

    def layers(self) -> list[Layer]:
        """Return the layers from bottom to top."""
        found = []
        for each in self._manifest["layers"]:
            content = gzip.decompress(self._blob(each))
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                headers = {"/" + member.name.removeprefix("./").strip("/"): member for member in tar}
            found.append(Layer(each["digest"], int(each["size"]), len(content), headers))
        return found

    def contents(self, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """Return the files with wanted paths, as a container sees them; for a symbolic link, its target."""
        found: dict[str, bytes] = {}
        for each in self._manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(self._blob(each)), mode="r:gz") as tar:
                for member in tar:
                    path = "/" + member.name.removeprefix("./").strip("/")
                    above, _, name = path.rpartition("/")
                    if name.startswith(".wh."):
                        gone = f"{above}/{name.removeprefix('.wh.')}"
                        found = {
                            kept: found[kept] for kept in found if kept != gone and not kept.startswith(f"{gone}/")
                        }
                    elif member.issym() and wanted(path):
                        found[path] = member.linkname.encode()
                    elif member.isfile() and wanted(path):
                        file = tar.extractfile(member)
                        found[path] = file.read() if file else b""
        return found

    def unpack(self, folder: Path) -> Path:
        """Write the files of all layers, as a container sees them, below a folder; return the folder.

        Files keep their owners if the caller is root.

        Raises:
            FileExistsError: the folder exists already.
        """
        folder.mkdir(parents=True)
        for each in self._manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(self._blob(each)), mode="r:gz") as tar:
                for member in tar:
                    name = Path(member.name)
                    if name.name.startswith(".wh."):
                        _remove(folder / name.parent / name.name.removeprefix(".wh."))
                    else:
                        tar.extract(member, folder, filter="fully_trusted")
        return folder

    def _blob(self, described: Mapping[str, Any]) -> bytes:
        return self._member("blobs/sha256/" + str(described["digest"]).removeprefix("sha256:"))

    def _member(self, name: str) -> bytes:
        with tarfile.open(self.path) as tar:
            content = tar.extractfile(name)
            assert content, f"{name} is not a file"
            return content.read()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write(folder: Path, name: str, archive: Path, compressed: Path) -> None:
    """Write an archive of an image that buildah has pushed to a folder (`dir:`) with uncompressed layers.

    Args:
        folder: contains manifest.json, and the blobs by their digests.
        name: full name under which a container runtime imports the image.
        archive: the file to write.
        compressed: the folder of cached compressed layers.
    """

    def blob(described: Mapping[str, Any]) -> Path:
        return folder / str(described["digest"]).removeprefix("sha256:")

    manifest = json.loads((folder / "manifest.json").read_bytes())
    layers = [_compressed(blob(each), compressed) for each in manifest["layers"]]
    manifest["mediaType"] = _MANIFEST
    manifest["layers"] = [_described(_LAYER, each.read_bytes()) for each in layers]
    encoded = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    contents = [encoded, blob(manifest["config"]).read_bytes(), *(each.read_bytes() for each in layers)]
    blobs = {f"blobs/sha256/{hashlib.sha256(content).hexdigest()}": content for content in contents}
    _pack(_described(_MANIFEST, encoded), name, blobs, archive)


def rename(archive: Path, name: str, renamed: Path) -> None:
    """Write an archive of the same image with another name."""
    with tarfile.open(archive) as tar:
        contents = {member.name: file.read() for member in tar if (file := tar.extractfile(member))}
    [entry] = json.loads(contents["index.json"])["manifests"]
    _pack(entry, name, {path: contents[path] for path in contents if path.startswith("blobs/")}, renamed)


def _pack(manifest: Mapping[str, Any], name: str, blobs: Mapping[str, bytes], archive: Path) -> None:
    entry = {**manifest, "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}, sort_keys=True).encode()
    members = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index, **blobs}
    with (
        tempfile.NamedTemporaryFile(dir=archive.parent, delete=False) as fresh,
        tarfile.open(fileobj=fresh, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path, content in members.items():
            header = tarfile.TarInfo(path)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    Path(fresh.name).rename(archive)


def _compressed(layer: Path, folder: Path) -> Path:
    kept = folder / f"{layer.name}.gz"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_suffix(".new")
        with layer.open("rb") as whole, fresh.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            shutil.copyfileobj(whole, packed, 1 << 20)
        fresh.rename(kept)
    kept.touch()
    return kept


def _described(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}
