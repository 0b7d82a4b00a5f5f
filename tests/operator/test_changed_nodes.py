"""A namespace whose shares change all the time delays no change of another namespace."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.operator.reconciler.changed_nodes import ChangedNodes


@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a")])
@pytest.mark.parametrize("busy", "abc")
def test_a_namespace_that_is_behind_delays_no_other(names: tuple[str, ...], busy: str) -> None:
    namespaces: dict[str, Any] = {
        name: SimpleNamespace(advance=lambda until: None, behind=name == busy, stale={f"node-{name}"}) for name in names
    }
    changed = ChangedNodes(namespaces)
    for name in names:
        changed.add_nodes_of(name)
    assert changed.take(0.0) == {f"node-{name}" for name in names if name != busy}
    assert changed.behind
    namespaces[busy].behind = False
    assert changed.take(0.0) == {f"node-{busy}"}
    assert not changed.behind
