"""Lists the software in the image and its licences, as read from the image itself, not from the requirements.

Python distributions declare their licence in METADATA; Debian packages declare it in dpkg's records and their copyright
files. All of these files are in the image. The result is a list for people and a bill of materials (CycloneDX 1.6,
JSON) for scanners. A scanner as a dependency was rejected: it would read the same three kinds of files.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from tools.image.archive import Archive

_METADATA = re.compile(r"/opt/orion/lib/python3\.\d+/site-packages/[^/]+\.dist-info/METADATA")
_LICENCE_TEXT = re.compile(r"(.*\.dist-info)/(?:licenses/)?(?:.*/)?(?:LICEN[CS]E|COPYING|NOTICE)[^/]*", re.IGNORECASE)
_DOCUMENTS = re.compile(r"/usr/share/doc/([^/]+)")
_COPYRIGHT = re.compile(r"/usr/share/doc/([^/]+)/copyright")
_DPKG = "/var/lib/dpkg/status"

# Licence names of distributions without a licence expression, and their SPDX names.
_SPDX = {
    "apache 2.0": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "3-clause bsd license": "BSD-3-Clause",
    "mit": "MIT",
    "mit license": "MIT",
    "psf-2.0": "PSF-2.0",
    "isc license": "ISC",
}
# Distributions with ambiguous licence names; the licence was read from the texts that they ship: name -> licence.
_READ = {"nvidia-ml-py": "BSD-3-Clause"}


@dataclass(frozen=True)
class Software:
    """One piece of software in the image.

    Args:
        kind: "pypi" or "deb", as in package URLs.
        licences: SPDX expressions; for Debian packages, the short names in their copyright files.
        texts: whether the image contains the text of the licence.
    """

    kind: str
    name: str
    version: str
    licences: tuple[str, ...]
    texts: bool
    architecture: str = ""

    @property
    def url(self) -> str:
        """The package URL (purl), which scanners use as the identity."""
        version = quote(self.version, safe="")
        if self.kind == "deb":
            return f"pkg:deb/debian/{self.name}@{version}?arch={self.architecture}"
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{version}"


def read(archive: Archive) -> list[Software]:
    """Return all software that the image records, sorted."""

    def of_interest(path: str) -> bool:
        kinds = (_METADATA, _LICENCE_TEXT, _DOCUMENTS, _COPYRIGHT)
        return path == _DPKG or any(kind.fullmatch(path) for kind in kinds)

    files = archive.contents(of_interest)
    texts = {found[1] for found in map(_LICENCE_TEXT.fullmatch, files) if found}
    python = [
        _distribution(message_from_bytes(content), path.rpartition("/")[0] in texts)
        for path, content in files.items() if _METADATA.fullmatch(path)
    ]  # fmt: skip
    copyrights = {found[1]: files[path] for path in files if (found := _COPYRIGHT.fullmatch(path))}
    # A package's folder may be a link to that of another package of the same source.
    links = {found[1]: files[path].decode() for path in files if (found := _DOCUMENTS.fullmatch(path))}
    copyrights |= {name: copyrights[other] for name, other in links.items() if other in copyrights}
    return sorted(python + _packages(files.get(_DPKG, b""), copyrights), key=lambda each: (each.kind, each.name))


def _distribution(metadata: Message, texts: bool) -> Software:
    name, version = str(metadata["Name"]), str(metadata["Version"])
    return Software("pypi", name, version, (_licence(name, metadata),), texts)


def _licence(name: str, metadata: Message) -> str:
    """Return a distribution's licence by its SPDX name, else in the distribution's words, else an empty text."""
    if name in _READ:
        return _READ[name]
    if metadata["License-Expression"]:
        return str(metadata["License-Expression"])
    classifiers = [each for each in metadata.get_all("Classifier", []) if each.startswith("License ::")]
    words = [str(metadata["License"] or ""), *(each.rpartition("::")[2].strip() for each in classifiers)]
    known = [_SPDX[each.lower()] for each in words if each.lower() in _SPDX]
    return known[0] if known else next((each for each in words if each), "")


def _packages(status: bytes, copyrights: Mapping[str, bytes]) -> list[Software]:
    found = []
    for paragraph in status.decode().split("\n\n"):
        fields = dict(re.findall(r"(?m)^([A-Za-z-]+): (.*)$", paragraph))
        if "installed" not in fields.get("Status", "").split():
            continue
        sources = (fields["Package"], fields.get("Source", "").split(" ")[0])
        text = next((copyrights[each] for each in sources if each in copyrights), None)
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        licences = _short_names(text.decode(errors="replace")) if text is not None else ()
        found.append(Software("deb", name, version, licences, text is not None, architecture))
    return found


def _short_names(text: str) -> tuple[str, ...]:
    """Return the licence names of a copyright file; for free text, the common licences to which it refers."""
    names = set(re.findall(r"/usr/share/common-licenses/([A-Za-z][A-Za-z0-9.-]*[A-Za-z0-9])", text))
    if text.startswith("Format:"):
        names |= {name.strip() for name in re.findall(r"(?m)^License: *(\S.*)$", text)}
    else:
        names.add("others, in its copyright file")
    return tuple(sorted(names))


def bill(archive: Archive, software: Sequence[Software]) -> dict[str, object]:
    """Return the bill of materials of an image. It contains no time, so equal images have equal bills."""
    labels = archive.configuration["config"]["Labels"]
    version = labels["org.opencontainers.image.version"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, archive.digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container", "bom-ref": archive.digest, "name": "orion", "version": version,
                "hashes": [{"alg": "SHA-256", "content": archive.digest.removeprefix("sha256:")}],
            },
        },
        "components": [_component(each) for each in software],
    }  # fmt: skip


def _component(software: Software) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "library", "bom-ref": software.url, "name": software.name, "version": software.version,
        "purl": software.url,
    }  # fmt: skip
    if software.kind == "pypi":
        entry["licenses"] = [{"expression": each} for each in software.licences]
    else:  # Debian's short names differ from SPDX
        entry["licenses"] = [{"license": {"name": each}} for each in software.licences]
    return entry


def table(software: Sequence[Software]) -> str:
    """Return the list for people, as Markdown."""
    lines = ["| software | version | from | licences |", "| --- | --- | --- | --- |"]
    origins = {"pypi": "PyPI", "deb": "Debian"}
    for each in software:
        lines.append(f"| {each.name} | {each.version} | {origins[each.kind]} | {', '.join(each.licences)} |")
    return "\n".join(lines) + "\n"


def write(archive: Archive, folder: Path) -> list[Software]:
    """Write the bill of materials and the list of licences into a folder; return the software."""
    software = read(archive)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sbom.cdx.json").write_text(json.dumps(bill(archive, software), indent=2) + "\n")
    (folder / "licences.md").write_text(table(software))
    return software
