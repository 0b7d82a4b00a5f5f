"""Checks that CHANGELOG.md speaks of the version that pyproject.toml builds. Run by `make check`."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Compare the newest heading of the changelog with the package's version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heading = re.search(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or heading[1] != version:
        reported = heading[1] if heading else "no version"
        print(f"CHANGELOG.md begins with {reported}, pyproject.toml says {version}", file=sys.stderr)
        return 1
    print(f"version: {version} in pyproject.toml and CHANGELOG.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
