"""`hook/identity.py` makes the same identities as `hook/src/learning/identity.h`."""

import random
import subprocess
from pathlib import Path

from orion.hook import identity

SOURCES = Path(__file__).parents[2] / "hook" / "src"

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "learning/identity.h"
int main(void)
{
    static char name[20000];
    unsigned n[7];
    while (scanf("%u %u %u %u %u %u %u %19999s", n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, name) == 8)
        printf("%llu\n", (unsigned long long)orion_identity_shape(orion_hash_name(name), 0, n[0], n[1], n[2],
                                                                  n[3], n[4], n[5], n[6]));
    return 0;
}
"""


def test_c_and_python_agree(tmp_path: Path) -> None:
    source, program = tmp_path / "identity.c", tmp_path / "identity"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-std=gnu11", f"-I{SOURCES}", "-o", program, source], check=True)
    chosen = random.Random(7)
    rows = []
    for _ in range(2000):
        name = bytes(chosen.choices(range(33, 256), k=chosen.choice((1, 8, 60, 500, 4095, 4096, 4097, 9000))))
        top = chosen.choice((3, 1024, 65536, 2**32))
        numbers = [chosen.randrange(top) for _ in range(7)]
        rows.append((numbers, name))
    asked = b"".join(b"%s %s\n" % (" ".join(map(str, numbers)).encode(), name) for numbers, name in rows)
    said = subprocess.run([program], input=asked, capture_output=True, check=True).stdout.split()
    made = [
        identity.kernel_identity(name, (n[0], n[1], n[2]), (n[3], n[4], n[5]), n[6])  # one call per row
        for n, name in rows
    ]
    assert [int(word) for word in said] == made
    assert all(identity.is_reported(each) for each in made)
    assert len(set(made)) == len(made)


def test_identities_made_of_handles_are_not_sent() -> None:
    assert not identity.is_reported(0)
    assert not identity.is_reported(1 | identity.LOCAL)
    assert not identity.is_reported(2**64 + 1)
