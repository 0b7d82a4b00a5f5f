"""Archives: equal images are equal files, and the view of a container follows from all layers."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.image import archive, inventory
from tools.image.archive import Archive

LABELS = {"org.opencontainers.image.version": "1.2.3"}


def pushed(folder: Path, *layers: Mapping[str, str]) -> Path:
    """Make what buildah writes when it pushes an image of these layers to a folder; a text with `->` makes a link."""
    folder.mkdir()

    def blob(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (folder / digest).write_bytes(content)
        return {"mediaType": "any", "digest": f"sha256:{digest}", "size": len(content)}

    described = []
    for layer in layers:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path, text in layer.items():
                header = tarfile.TarInfo(path)
                if text.startswith("->"):
                    header.type, header.linkname = tarfile.SYMTYPE, text.removeprefix("->")
                    tar.addfile(header)
                else:
                    header.size = len(text.encode())
                    tar.addfile(header, io.BytesIO(text.encode()))
        described.append(blob(buffer.getvalue()))
    configuration = blob(json.dumps({"config": {"Labels": LABELS}}).encode())
    (folder / "manifest.json").write_text(
        json.dumps({"schemaVersion": 2, "config": configuration, "layers": described})
    )
    return folder


def made(folder: Path, *layers: Mapping[str, str]) -> Archive:
    archive.write(pushed(folder / "pushed", *layers), "localhost/a/name:tag", folder / "image.tar", folder / "layers")
    return Archive(folder / "image.tar")


def test_an_archive_has_a_name_layers_and_sizes(tmp_path: Path) -> None:
    image = made(tmp_path, {"etc/one": "1" * 5000}, {"etc/two": "2"})
    assert image.name == "localhost/a/name:tag"
    assert [sorted(layer.files) for layer in image.layers()] == [["/etc/one"], ["/etc/two"]]
    assert [layer.uncompressed for layer in image.layers()] == [10240, 10240]
    assert image.size == sum(layer.size for layer in image.layers()) < 1000


def test_compressed_layers_are_cached_by_the_digest_of_their_content(tmp_path: Path) -> None:
    image = made(tmp_path, {"etc/one": "1"})
    [layer] = image.layers()
    [kept] = (tmp_path / "layers").iterdir()
    assert layer.digest == "sha256:" + hashlib.sha256(kept.read_bytes()).hexdigest()
    assert kept.name == hashlib.sha256(gzip.decompress(kept.read_bytes())).hexdigest() + ".gz"


def test_equal_images_are_equal_files(tmp_path: Path) -> None:
    archives = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        archives.append(made(tmp_path / name, {"etc/one": "1"}).path.read_bytes())
    assert archives[0] == archives[1]


def test_upper_layers_replace_and_remove_files_of_lower_ones(tmp_path: Path) -> None:
    image = made(tmp_path, {"a": "1", "b": "1", "c/d": "1", "e": "1"}, {"./a": "2", ".wh.b": "", ".wh.c": ""})
    assert image.contents(lambda path: path != "/e") == {"/a": b"2"}
    unpacked = image.unpack(tmp_path / "unpacked")
    assert {path.name: path.read_text() for path in unpacked.rglob("*") if path.is_file()} == {"a": "2", "e": "1"}


def test_another_name_changes_nothing_else(tmp_path: Path) -> None:
    image = made(tmp_path, {"a": "1"})
    archive.rename(image.path, "localhost/b:1", tmp_path / "renamed.tar")
    renamed = Archive(tmp_path / "renamed.tar")
    assert (renamed.name, renamed.digest) == ("localhost/b:1", image.digest)
    assert renamed.contents(lambda _: True) == {"/a": b"1"}


METADATA = "/opt/orion/lib/python3.11/site-packages/{}.dist-info/METADATA"


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: Apache-2.0 AND MIT", "Apache-2.0 AND MIT"),
        ("License: Apache 2.0", "Apache-2.0"),
        ("License: as you like", "as you like"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT"),
        ("Summary: nothing said", ""),
    ],
)
def test_the_licence_of_a_distribution_is_read(tmp_path: Path, metadata: str, licence: str) -> None:
    image = made(tmp_path, {METADATA.format("a_thing-1.0"): f"Name: A.thing\nVersion: 1.0\n{metadata}\n"})
    [found] = inventory.read(image)
    assert (found.url, found.licences, found.texts) == ("pkg:pypi/a-thing@1.0", (licence,), False)


def test_the_text_of_a_licence_is_found(tmp_path: Path) -> None:
    path = METADATA.format("a-1")
    text = path.replace("METADATA", "licenses/vendor/LICENSE.txt")
    [found] = inventory.read(made(tmp_path, {path: "Name: a\nVersion: 1\n", text: "Do."}))
    assert found.texts


COMMON = "/usr/share/common-licenses"
STATUS = """\
Package: libone
Status: install ok installed
Architecture: amd64
Source: one (1.0)
Version: 1:1.0+b1

Package: libgone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: libtwo
Status: install ok installed
Architecture: all
Version: 2

Package: libmute
Status: install ok installed
Architecture: all
Version: 3
"""


def test_debian_packages_are_read_with_their_copyright_files(tmp_path: Path) -> None:
    image = made(
        tmp_path,
        {
            "var/lib/dpkg/status": STATUS,
            "usr/share/doc/one/copyright": f"Format: https://x\nLicense: GPL-2+\n see {COMMON}/GPL-2.\n",
            "usr/share/doc/two-data/copyright": f"Words.\nLicense: Permission is granted\n{COMMON}/LGPL-2.1",
            "usr/share/doc/libtwo": "->two-data",
        },
    )
    found = {each.name: (each.url, each.licences, each.texts) for each in inventory.read(image)}
    assert found == {
        "libone": ("pkg:deb/debian/libone@1%3A1.0%2Bb1?arch=amd64", ("GPL-2", "GPL-2+"), True),
        "libtwo": ("pkg:deb/debian/libtwo@2?arch=all", ("LGPL-2.1", "others, in its copyright file"), True),
        "libmute": ("pkg:deb/debian/libmute@3?arch=all", (), False),
    }


def test_equal_images_have_equal_bills_of_materials(tmp_path: Path) -> None:
    image = made(tmp_path, {METADATA.format("a-1"): "Name: a\nVersion: 1\nLicense: MIT\n"})
    software = inventory.write(image, tmp_path / "lists")
    bill = json.loads((tmp_path / "lists/sbom.cdx.json").read_text())
    assert bill == inventory.bill(image, software)
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    assert "| a | 1 | PyPI | MIT |" in (tmp_path / "lists/licences.md").read_text()
