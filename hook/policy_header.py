"""The text of `hook/include/orion/policy.h`: policies, their fields as words of the policy page, defaults, bounds."""

from collections.abc import Iterable

from orion.hook import layout, policy_table
from orion.hook.policy_table import BENCH, RELEASE, Row, Table

_HEAD = """\
/* The layout version, the policies, and the words of a policy in the policy page. ORION_BASELINES is defined only for
 * the library of `orion bench`: it has more policies, and the words of these are at the end of the same bytes. */
#ifndef ORION_POLICY_PAGE_H
#define ORION_POLICY_PAGE_H

#include <stdint.h>

"""


def text(opening: str) -> str:
    """Return the text of the whole file, which begins with `opening`."""
    return (
        f"{opening}{_HEAD}#define ORION_LAYOUT_VERSION {layout.LAYOUT_VERSION}u\n\n{_kinds()}\n{_structure()}\n"
        f"/* The bounds of each field. */\n{_bounds(RELEASE.rows)}\n{_defaults()}\n#endif\n"
    )


def _kind(name: str, number: int, sentence: str) -> str:
    return f"    {f'ORION_POLICY_{name.upper()}'.replace('-', '_')} = {number}, /* {sentence} */\n"


def _kinds() -> str:
    release = "".join(_kind(each.name, each.number, each.sentence) for each in RELEASE.policies)
    more = BENCH.policies[len(RELEASE.policies) :]
    bench = "".join(_kind(each.name, each.number, each.sentence) for each in more)
    return f"enum orion_policy_kind {{\n{release}#ifdef ORION_BASELINES\n{bench}#endif\n}};\n"


def _members(table: Table) -> dict[str, str]:
    sentences = {row.word: _sentence(row) for row in table.all_rows}
    members = {}
    for name, size, count in table.words():
        array = f"[{count}]" if count > 1 else ""
        said = f" /* {sentences[name]} */" if name in sentences else ""
        members[name] = f"    uint{8 * size}_t {name}{array};{said}\n"
    return members


def _sentence(row: Row) -> str:
    return f"1 - {row.name}. {row.sentence}" if row.rest_word else row.sentence


def _structure() -> str:
    release, bench = _members(RELEASE), _members(BENCH)
    shared = "".join(line for name, line in release.items() if name != "spare")
    appended = bench["spare"] + "".join(line for name, line in bench.items() if name not in release)
    return (
        "/* One complete policy. `sequence` grows by one with every change; it is for reports, not for locking. */\n"
        f"struct orion_policy {{\n{shared}"
        f"#ifndef ORION_BASELINES\n{release['spare']}#else\n{appended}#endif\n}};\n"
        f'_Static_assert(sizeof(struct orion_policy) == {policy_table.SIZE}, "policy");\n'
    )


def _figure(row: Row, word: int) -> str:
    return f"{word}u" if row.unit.size == 4 else f"UINT64_C({word})"


def _bounds(rows: Iterable[Row]) -> str:
    return "".join(
        f"#define ORION_{row.word.upper()}_{end} {_figure(row, word)}\n"
        for row in rows
        for end, word in zip(("LEAST", "MOST"), row.page_bounds, strict=True)
    )


def _defaults() -> str:
    def initialisers(rows: Iterable[Row]) -> str:
        return "".join(f"        .{row.word} = {_figure(row, row.to_page(row.default))},\n" for row in rows)

    return (
        "/* The policy if users set nothing. */\n"
        "static inline struct orion_policy orion_policy_default(void)\n{\n    return (struct orion_policy){\n"
        f"        .kind = ORION_POLICY_{RELEASE.policies[0].name.upper()},\n{initialisers(RELEASE.rows)}"
        f"#ifdef ORION_BASELINES\n{initialisers(BENCH.appended)}#endif\n    }};\n}}\n"
    )
