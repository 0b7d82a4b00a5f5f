"""`hook/layout.py` and `hook/join.py` have the same sizes, offsets and constants as the C headers, and omit none."""

import re
import subprocess
from ctypes import LittleEndianStructure, sizeof
from enum import IntEnum
from pathlib import Path

import pytest

from orion.hook import join, layout, policy_table

INCLUDE = Path(__file__).parents[2] / "hook" / "include"
HEADERS = re.sub(
    r"#ifdef ORION_BASELINES\n.*?#endif\n|#else\n.*?#endif\n",
    "",
    "".join((INCLUDE / "orion" / name).read_text() for name in ("pages.h", "policy.h", "join.h", "knowledge.h")),
    flags=re.DOTALL,
)

STRUCTURES: dict[str, type[LittleEndianStructure]] = {
    "orion_page_header": layout.PageHeader,
    "orion_policy": layout.Policy,
    "orion_policy_page": layout.PolicyPage,
    "orion_grant": layout.Grant,
    "orion_grant_page": layout.GrantPage,
    "orion_busy_page": layout.BusyPage,
    "orion_busy_period": layout.BusyPeriod,
    "orion_record_page": layout.RecordPage,
    "orion_rank": layout.Rank,
    "orion_job_page": layout.JobPage,
    "orion_message": join.Message,
    "orion_hello": join.Hello,
    "orion_ready": join.Ready,
    "orion_report_message": join.Report,
    "orion_suspect": join.Suspect,
    "orion_turn": join.Turn,
    "orion_memory_wish": join.MemoryWish,
    "orion_credit": join.Credit,
    "orion_park": join.Park,
    "orion_view": join.View,
    "orion_shown": join.Shown,
    "orion_welcome": join.Welcome,
    "orion_refused": join.Refused,
    "orion_client_index": join.Place,
    "orion_neighbours": join.Neighbours,
    "orion_gone": join.Gone,
    "orion_knowledge_entry": join.KnowledgeEntry,
    "orion_knowledge_header": join.KnowledgeHeader,
    "orion_learnt": join.Learnt,
    "orion_knowledge": join.Knowledge,
    "orion_job": join.Job,
}

# Each row has a prefix of C constants and the Python enumeration with the same values. The first prefix that fits
# decides.
ENUMERATIONS: list[tuple[str, type[IntEnum]]] = [
    ("ORION_PAGE_", layout.PageKind),
    ("ORION_ROLE_", layout.Role),
    ("ORION_POLICY_", layout.PolicyKind),
    ("ORION_CLASS_", layout.KernelClass),
    ("ORION_REFUSED_", join.Refusal),
    ("ORION_REPORT_", join.ReportCode),
    ("ORION_TURN_", join.TurnWish),
    ("ORION_CREDIT_", join.CreditAnswer),
    ("ORION_UNIFIED_", layout.Unified),
    ("ORION_PARKING_REASON_", layout.ParkingReason),
    ("ORION_PARKING_", layout.ParkingState),
]
BARE: dict[str, type[IntEnum]] = {
    "orion_busy_state": layout.BusyState,
    "orion_message_type": join.MessageType,
}


def constants() -> dict[str, int]:
    """The C name of every constant of the headers, with the value that Python has for it."""
    names: dict[str, int] = {}
    for name in re.findall(r"^#define ORION_(\w+) ", HEADERS, re.MULTILINE):
        names[f"ORION_{name}"] = _constant(name)
    for enumeration, body in re.findall(r"^enum ?(\w*) \{(.*?)\};", HEADERS, re.MULTILINE | re.DOTALL):
        for name in re.findall(r"ORION_\w+", body):
            names[name] = _python_value(enumeration, name)
    return names


def _python_value(enumeration: str, name: str) -> int:
    if enumeration in BARE:
        return BARE[enumeration][name.removeprefix("ORION_")]
    for prefix, members in ENUMERATIONS:
        if enumeration and name.startswith(prefix):
            return members[name.removeprefix(prefix)]
    return _constant(name.removeprefix("ORION_"))


def _constant(name: str) -> int:
    for row in policy_table.RELEASE.rows:
        bounds = dict(zip(("LEAST", "MOST"), row.page_bounds, strict=True))
        if name.removesuffix("_LEAST").removesuffix("_MOST") == row.word.upper():
            return bounds[name.rpartition("_")[2]]
    (value,) = {getattr(module, name) for module in (layout, join) if hasattr(module, name)}
    return int(value)


@pytest.fixture(scope="module")
def said_by_c(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    lines = [f'printf("%s %llu\\n", "{name}", (unsigned long long)({name}));' for name in constants()]
    for tag, structure in STRUCTURES.items():
        lines.append(f'printf("%s %zu\\n", "{tag}", sizeof(struct {tag}));')
        for field in structure._fields_:
            where, size = f"offsetof(struct {tag}, {field[0]})", f"sizeof(((struct {tag} *)0)->{field[0]})"
            lines.append(f'printf("%s %zu\\n", "{tag}.{field[0]}", {where});')
            lines.append(f'printf("%s %zu\\n", "{tag}.{field[0]}:size", {size});')
    folder = tmp_path_factory.mktemp("layout")
    source = folder / "layout.c"
    source.write_text(
        "#include <stdio.h>\n#include <orion/pages.h>\n#include <orion/join.h>\nint main(void) {\n"
        + "\n".join(lines)
        + "\nreturn 0; }\n"
    )
    program = folder / "layout"
    subprocess.run(["gcc", "-std=c11", f"-I{INCLUDE}", "-o", program, source], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


@pytest.mark.parametrize("tag", STRUCTURES)
def test_structures_have_equal_layouts(tag: str, said_by_c: dict[str, int]) -> None:
    structure = STRUCTURES[tag]
    end = 0
    for name, *_ in structure._fields_:
        field = getattr(structure, name)
        assert (field.offset, field.size) == (said_by_c[f"{tag}.{name}"], said_by_c[f"{tag}.{name}:size"]), name
        assert field.offset == end, f"a field before {name} is missing"
        end = field.offset + field.size
    assert sizeof(structure) == said_by_c[tag] == end


def test_no_structure_is_left_out() -> None:
    assert set(re.findall(r"^struct (\w+) \{", HEADERS, re.MULTILINE)) == set(STRUCTURES)


def test_constants_are_equal(said_by_c: dict[str, int]) -> None:
    python = constants()
    assert len(python) > 30
    assert {name: said_by_c[name] for name in python} == python


@pytest.mark.parametrize("baselines", [False, True])
def test_the_library_of_the_benches_only_appends_words(baselines: bool, tmp_path: Path) -> None:
    table = policy_table.BENCH if baselines else policy_table.RELEASE
    structure = layout.policy_structure(table)
    fields = {name: getattr(structure, name).offset for name, *_ in structure._fields_}
    printed = "".join(f'printf("{name} %zu\\n", offsetof(struct orion_policy, {name}));\n' for name in fields)
    kinds = {f"ORION_POLICY_{each.name.upper().replace('-', '_')}": each.number for each in table.policies}
    printed += "".join(f'printf("{kind} %d\\n", {kind});\n' for kind in kinds)
    printed += 'printf("LAYOUT %u\\n", ORION_LAYOUT_NEWEST);\n'
    source = f"#include <stdio.h>\n#include <orion/pages.h>\nint main(void) {{ {printed} return 0; }}\n"
    define = ["-DORION_BASELINES"] if baselines else []
    command = ["gcc", "-std=c11", *define, f"-I{INCLUDE}", "-xc", "-", "-o", str(tmp_path / "words")]
    subprocess.run(command, input=source, text=True, check=True)
    output = subprocess.run([tmp_path / "words"], check=True, capture_output=True, text=True).stdout
    said = {name: int(value) for name, value in (line.split() for line in output.splitlines())}
    newest = layout.BENCH_LAYOUTS * baselines + layout.LAYOUT_VERSION
    assert said == fields | kinds | {"LAYOUT": newest}
    release = layout.policy_structure(policy_table.RELEASE)
    assert all(fields[name] == getattr(release, name).offset for name, *_ in release._fields_)
