"""The image's inputs: the files that .dockerignore permits, read once, and a digest of them.

The builder gets a copy of the digested contents, with the same modes and times for every checkout. It does not read the
checkout itself, whose files may change during the build.
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
    """A .dockerignore that begins with `*`: which paths it permits, and what it excludes from these."""

    passing: tuple[str, ...]
    left_out: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Rules":
        """Parse the rules.

        Raises:
            ValueError: they do not begin with `*`, or permit a path after they have excluded one.
        """
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        first_left_out = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith("!")), len(lines))
        if lines[:1] != ["*"] or any(line.startswith("!") for line in lines[first_left_out:]):
            raise ValueError(".dockerignore must have `*`, then permitted paths (`!path`), then exclusions from these")
        return cls(tuple(line[1:] for line in lines[1:first_left_out]), tuple(lines[first_left_out:]))

    def leave_out(self, path: PurePosixPath) -> bool:
        """Return whether a path, or a folder that contains it, is excluded."""
        for rule in self.left_out:
            anywhere = rule.removeprefix("**/")
            if anywhere != rule and any(fnmatch(part, anywhere) for part in path.parts):
                return True
            if path.is_relative_to(rule):
                return True
        return False


def read(root: Path = ROOT) -> dict[str, bytes]:
    """Return the contents of the builder's files, by their paths below the root.

    Raises:
        ValueError: see `Rules`.
        FileNotFoundError: a permitted path does not exist.
    """
    rules = Rules.read((root / ".dockerignore").read_text())
    return {str(path): (root / path).read_bytes() for path in _files(root, rules)}


def _files(root: Path, rules: Rules) -> Iterator[PurePosixPath]:
    for passing in sorted(rules.passing):
        above = root / passing
        if not above.exists():
            raise FileNotFoundError(f".dockerignore permits {passing}, which does not exist")
        found = sorted(above.rglob("*")) if above.is_dir() else [above]
        for path in found:
            relative = PurePosixPath(path.relative_to(root).as_posix())
            if path.is_file() and not rules.leave_out(relative):
                yield relative


def digest(files: Mapping[str, bytes], *more: str) -> str:
    """Return one digest of files and of other inputs of the build."""
    whole = hashlib.sha256("\0".join(more).encode())
    for path in sorted(files):
        whole.update(f"\0{path}\0{len(files[path])}\0".encode())
        whole.update(files[path])
    return whole.hexdigest()


def write(files: Mapping[str, bytes], folder: Path, root: Path = ROOT) -> None:
    """Write files below a folder; files that are executable in the checkout stay executable."""
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        program = (root / path).exists() and (root / path).stat().st_mode & stat.S_IXUSR
        target.chmod(0o755 if program else 0o644)
    for above, folders, _ in os.walk(folder):
        for name in folders:
            (Path(above) / name).chmod(0o755)
