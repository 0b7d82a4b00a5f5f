"""The testbed makes images from files: tests of the archive's content, and that equal files give equal archives."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from testbed.images import Image, Link, with_libraries


def parts(archive: Path) -> tuple[dict[str, Any], dict[str, Any], tarfile.TarFile]:
    """The index, the configuration and the layer of an archive, each verified by its digest."""
    with tarfile.open(archive) as tar:
        content = {member.name: tar.extractfile(member).read() for member in tar if tar.extractfile(member)}  # type: ignore[union-attr]
    for name, blob in content.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"
    index = json.loads(content["index.json"])

    def described_blob(described: dict[str, Any]) -> bytes:
        found = content["blobs/sha256/" + described["digest"].removeprefix("sha256:")]
        assert len(found) == described["size"]
        return found

    manifest = json.loads(described_blob(index["manifests"][0]))
    layer = described_blob(manifest["layers"][0])
    configuration = json.loads(described_blob(manifest["config"]))
    assert configuration["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    return index, configuration, tarfile.open(fileobj=io.BytesIO(layer))


def test_an_image_has_its_files_with_their_modes_and_its_command(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"run")
    program.chmod(0o755)
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("deep")
    (folder / "link").symlink_to("inner/file")
    image = Image(
        "localhost/test/image:1",
        {
            "/bin/program": program,
            "/data": folder,
            "/etc/text": b"said",
            "/lib64": Link("usr/lib64"),
            "/tmp/.keep": b"",
        },
        entrypoint=("/bin/program",),
        command=("--option",),
        environment={"NAME": "value"},
        user="1000:1000",
        folder="/data",
    )
    index, configuration, layer = parts(image.write(tmp_path / "image.tar"))
    assert index["manifests"][0]["annotations"] == {"io.containerd.image.name": "localhost/test/image:1"}
    run = configuration["config"]
    assert (run["Entrypoint"], run["Cmd"], run["Env"]) == (["/bin/program"], ["--option"], ["NAME=value"])
    assert (run["User"], run["WorkingDir"]) == ("1000:1000", "/data")
    members = {member.name: member for member in layer}
    assert sorted(members) == [
        "bin", "bin/program", "data", "data/inner", "data/inner/file", "data/link", "etc", "etc/text", "lib64",
        "tmp", "tmp/.keep",
    ]  # fmt: skip
    assert {member.uid for member in members.values()} == {0}
    assert (members["bin/program"].mode, members["etc/text"].mode, members["tmp"].mode) == (0o755, 0o644, 0o1777)
    assert (members["lib64"].linkname, members["data/link"].linkname) == ("usr/lib64", "inner/file")
    assert layer.extractfile("data/inner/file").read() == b"deep"  # type: ignore[union-attr]


def test_the_same_files_give_the_same_archive_whenever_they_were_written(tmp_path: Path) -> None:
    archives = []
    for number, names in enumerate((("a", "b"), ("b", "a"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in names:
            (folder / name).write_text(name)
            os.utime(folder / name, (number, number))
        files = {f"/{name}": folder / name for name in names}
        archives.append(Image("localhost/test/same:1", files).write(tmp_path / f"{number}.tar").read_bytes())
    assert archives[0] == archives[1]


def test_a_program_comes_with_its_loader_and_libraries(tmp_path: Path) -> None:
    shell = Path(shutil.which("bash") or "/bin/sh")
    files = with_libraries(shell)
    for path, source in files.items():
        assert isinstance(source, Path)
        copy = tmp_path / path.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    loader = next(tmp_path / path.lstrip("/") for path in files if Path(path).name.startswith("ld-"))
    reported = subprocess.run(["readelf", "-d", shell], capture_output=True, text=True, check=True).stdout
    for needed in (line.split("[")[1].rstrip("]") for line in reported.splitlines() if "(NEEDED)" in line):
        assert any(Path(path).name == needed for path in files)
    assert loader.stat().st_mode & 0o111


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    source, library, program = tmp_path / "library.c", tmp_path / "libgone.so", tmp_path / "program"
    source.write_text("int one(void) { return 1; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    source.write_text("int one(void); int main(void) { return one(); }")
    subprocess.run(["cc", "-o", program, source, library], check=True)
    library.unlink()
    with pytest.raises(FileNotFoundError, match=r"libgone\.so"):
        with_libraries(program)
