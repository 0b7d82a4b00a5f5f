"""What the image is made of: the files that .dockerignore lets pass, read once, and a digest of them.

What is digested is what is built: the builder is given a copy, with the modes and times that every checkout would
have, not a folder in which somebody may be writing.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Rules:
    """A .dockerignore that begins with `*`: what may pass, and what is left out of that."""

    passing: tuple[str, ...]
    left_out: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Rules":
        """Read the rules.

        Raises:
            ValueError: they do not begin with `*`, or allow something again after they have left something out.
        """
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        first_left_out = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith("!")), len(lines))
        if lines[:1] != ["*"] or any(line.startswith("!") for line in lines[first_left_out:]):
            raise ValueError(".dockerignore is to be `*`, then what may pass (`!path`), then what is left out of that")
        return cls(tuple(line[1:] for line in lines[1:first_left_out]), tuple(lines[first_left_out:]))

    def leave_out(self, path: PurePosixPath) -> bool:
        """Tell whether a path, or a folder that it is in, is left out."""
        for rule in self.left_out:
            anywhere = rule.removeprefix("**/")
            if anywhere != rule and any(fnmatch(part, anywhere) for part in path.parts):
                return True
            if path.is_relative_to(rule):
                return True
        return False


def read(root: Path = ROOT) -> dict[str, bytes]:
    """Return the contents of the files that the builder is given, by their paths below the root.

    Raises:
        ValueError: see `Rules`.
        FileNotFoundError: something that may pass is not there.
    """
    rules = Rules.read((root / ".dockerignore").read_text())
    return {str(path): (root / path).read_bytes() for path in _files(root, rules)}


def _files(root: Path, rules: Rules) -> Iterator[PurePosixPath]:
    for passing in sorted(rules.passing):
        above = root / passing
        if not above.exists():
            raise FileNotFoundError(f".dockerignore lets {passing} pass, which is not there")
        found = sorted(above.rglob("*")) if above.is_dir() else [above]
        for path in found:
            relative = PurePosixPath(path.relative_to(root).as_posix())
            if path.is_file() and not rules.leave_out(relative):
                yield relative


def digest(files: Mapping[str, bytes], *more: str) -> str:
    """Return one digest of files, and of whatever else decides what comes of them."""
    whole = hashlib.sha256("\0".join(more).encode())
    for path in sorted(files):
        whole.update(f"\0{path}\0{len(files[path])}\0".encode())
        whole.update(files[path])
    return whole.hexdigest()


def write(files: Mapping[str, bytes], folder: Path, root: Path = ROOT) -> None:
    """Write files below a folder; those that may be executed in the checkout may be there."""
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        program = (root / path).exists() and (root / path).stat().st_mode & stat.S_IXUSR
        target.chmod(0o755 if program else 0o644)
    for above, folders, _ in os.walk(folder):
        for name in folders:
            (Path(above) / name).chmod(0o755)
