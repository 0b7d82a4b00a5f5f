"""Builds the C tests under each sanitizer and runs them with ctest. Run by `make test`.

Each sanitizer has its own build, because the address and the thread sanitizer cannot share a process. Only C test
programs are built this way: a preloaded library under a sanitizer would require preloading the sanitizer first, into
programs that were not built for it.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SANITIZERS = {"address": "address,undefined", "thread": "thread"}


def without_address_randomisation() -> list[str]:
    """Return the command prefix that turns ASLR off: older thread sanitizers cannot map memory with 32 random bits."""
    prefix = ["setarch", os.uname().machine, "-R"]
    if shutil.which("setarch") and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
        return prefix
    return []


def build_and_run(name: str, build: Path) -> int:
    """Configure, compile and test one sanitizer; return the first exit status that is not 0."""
    folder = build / name
    environment = os.environ | {
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "second_deadlock_stack=1:halt_on_error=0",
    }
    configure = ["cmake", "-S", str(ROOT / "hook"), "-B", str(folder), "-G", "Ninja", "--log-level=WARNING"]
    configure += [f"-DPython3_EXECUTABLE={sys.executable}", f"-DORION_SANITIZE={SANITIZERS[name]}"]
    configure += ["-DORION_TESTS=ON", "-DCMAKE_BUILD_TYPE=Debug"]
    test = [*without_address_randomisation(), "ctest", "--test-dir", str(folder), "--output-on-failure", "-j2"]
    for command in (configure, ["cmake", "--build", str(folder), "--target", "c_tests", "--", "--quiet"], test):
        status = subprocess.run(command, env=environment).returncode
        if status != 0:
            return status
    return 0


def main() -> int:
    """Run every sanitizer, even after one has failed; print which failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="folder that holds the builds")
    build = parser.parse_args().build
    failed = [name for name in SANITIZERS if build_and_run(name, build) != 0]
    if failed:
        print(f"sanitizers: {', '.join(failed)} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
