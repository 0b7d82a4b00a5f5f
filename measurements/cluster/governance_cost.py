"""Measures the CPU time that a change of one share costs the operator's decisions, without a cluster.

    python -m measurements.cluster.governance_cost --output FILE

The state holds 2,000 shares and 10,000 pods of one namespace, and all shares govern. The program changes a share that
selects 10 pods by label, one that selects 1,000, and one whose selector excludes, so that it is compared with all pods.
Then the state holds 1,000 pods and 2,000 shares that all exclude, of which 200 govern, and the program changes one of
them. CPU time hardly depends on other processes of the machine.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orion.crds.governing import SHARES_MAX
from orion.operator.reconciler.garbage import collect_in_short_steps
from orion.operator.reconciler.records import pod_record, share_record
from orion.operator.reconciler.state import State

REPEATS = 20
SLICE_S = 0.005


def pod(name: str, app: str) -> dict[str, Any]:
    """Return a pod with a slot."""
    container = {"name": "main", "resources": {"limits": {"orion.gpu/be": "1"}}}
    meta = {
        "namespace": "n",
        "name": name,
        "uid": name,
        "labels": {"app": app},
        "annotations": {"orion/priority": "be"},
    }
    return {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": "Running"}}


def share(name: str, generation: int, selector: dict[str, Any]) -> dict[str, Any]:
    """Return a share."""
    meta = {"namespace": "n", "name": name, "uid": name, "generation": generation}
    return {"metadata": meta, "spec": {"priority": "be", "selector": selector, "memory": {"limit": f"{generation}Gi"}}}


def labelled(app: str) -> dict[str, Any]:
    """Return a selector of one label."""
    return {"matchLabels": {"app": app}}


def excluding(number: int) -> dict[str, Any]:
    """Return a selector of the largest size that only excludes, and so matches every pod."""
    values = [f"value-{number}-{each}" for each in range(4)]
    return {"matchExpressions": [{"key": f"key-{each}", "operator": "NotIn", "values": values} for each in range(16)]}


def filled(shares: Iterable[dict[str, Any]], pods: Iterable[dict[str, Any]], most: int | None = None) -> State:
    """Return a state with these objects, to which all changes have been applied; `most` shares govern."""
    state = State(most)
    for each in pods:
        state.put_pod(pod_record(each))
    for each in shares:
        state.put_share(share_record(each))
    state.moved("n")
    collect_in_short_steps()  # as `orion operator` does
    return state


def changes(state: State, name: str, selector: dict[str, Any]) -> dict[str, Any]:
    """Change a share again and again; return CPU seconds."""
    whole, slices, collected, concerned = [], [], [], 0
    for generation in range(2, 2 + REPEATS):
        began = time.thread_time()
        state.put_share(share_record(share(name, generation, selector)))
        while state.behind("n"):
            sliced = time.thread_time()
            state.advance("n", time.monotonic() + SLICE_S)
            slices.append(time.thread_time() - sliced)
        concerned, last = 0, time.thread_time()
        while moved := len(state.moved("n", 1_000)):
            collected.append(time.thread_time() - last)
            concerned, last = concerned + moved, time.thread_time()
        whole.append(time.thread_time() - began)
    whole.sort()
    figures = {"median_ms": whole[REPEATS // 2], "longest_ms": whole[-1], "longest_slice_ms": max(slices)}
    figures["longest_reading_ms"] = max(collected)
    return {"objects_decided_again": concerned} | {key: round(1e3 * value, 3) for key, value in figures.items()}


def main() -> None:
    """Measure, and write the raw data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = ["ten", "thousand", *(f"share-{number}" for number in range(1_997))]
    pods = [pod(f"ten-{number}", "ten") for number in range(10)]
    pods += [pod(f"thousand-{number}", "thousand") for number in range(1_000)]
    pods += [pod(f"pod-{number}", names[2 + number % 1_997]) for number in range(8_990)]
    state = filled([*(share(name, 1, labelled(name)) for name in names), share("apart", 1, labelled("apart"))], pods)
    found: dict[str, Any] = {"cores": os.cpu_count(), "python": platform.python_version(), "repeats": REPEATS}
    found["10 pods by label"] = changes(state, "ten", labelled("ten"))
    found["1,000 pods by label"] = changes(state, "thousand", labelled("thousand"))
    found["all 10,000 pods, by exclusion"] = changes(state, "apart", excluding(0))
    excluded = (share(f"share-{number}", 1, excluding(number)) for number in range(2_000))
    began = time.thread_time()
    state = filled(excluded, [pod(f"pod-{number}", "a") for number in range(1_000)], SHARES_MAX)
    found["2,000 shares by exclusion, 1,000 pods: first, s"] = round(time.thread_time() - began, 2)
    found["one of these shares"] = changes(state, "share-1", excluding(7))
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
