"""Checks that the newest heading in CHANGELOG.md is the version in pyproject.toml. Run by `make check`."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Compare the two versions."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heading = re.search(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or heading[1] != version:
        reported = heading[1] if heading else "no version"
        print(f"CHANGELOG.md begins with {reported}, pyproject.toml has {version}", file=sys.stderr)
        return 1
    print(f"version: {version} in pyproject.toml and CHANGELOG.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
