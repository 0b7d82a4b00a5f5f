"""`orion policy` and the policy options of `orion run`, with a real agent of the simulated GPU."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.orion_command import orion, run


def policies(root: Path) -> dict[str, float | str]:
    shown = json.loads(orion("policy", "show", "--json", "--root", str(root)).stdout)
    (policy,) = shown.values()
    assert isinstance(policy, dict)
    return policy


def test_a_running_agents_policy_is_shown_and_changed(root: Path) -> None:
    assert run(root, "--priority", "be").returncode == 0
    assert (policies(root)["policy"], policies(root)["max_slowdown"]) == ("orion", 1.0)
    done = orion("policy", "set", "0", "--max-slowdown", "1.2", "--request", "0.95", "--root", str(root))
    assert done.returncode == 0, done.stderr
    lines = {tuple(line.split()) for line in done.stdout.splitlines()}
    assert {("max_slowdown", "1.2"), ("request", "0.95"), ("window_us", "400")} <= lines
    changed = policies(root)
    assert (changed["max_slowdown"], changed["request"], changed["policy"]) == (1.2, 0.95, "orion")
    assert orion("policy", "set", "all", "--policy", "gate", "--root", str(root)).returncode == 0
    assert policies(root) == changed | {"policy": "gate"}
    assert "policy  gate" in orion("top", "--once", "--root", str(root)).stdout


def test_an_invalid_policy_is_one_sentence(root: Path) -> None:
    nobody = orion("policy", "show", "--root", str(root))
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "no agent listens" in nobody.stderr
    run(root, "--priority", "be")
    for gpu in ("7", "GPU-x"):
        refused = orion("policy", "set", gpu, "--policy", "gate", "--root", str(root))
        assert refused.returncode == 2
        assert f"there is no GPU {gpu!r}; GPU takes all, or one of: 0 (GPU-" in refused.stderr
        assert "--gpu" not in refused.stderr
    refused = orion("policy", "set", "0", "--linger-floor-us", "9000", "--linger-ceiling-us", "10", "--root", str(root))
    assert refused.returncode == 1
    assert "the agent refused the request: linger_floor_us 9000 must not exceed linger_ceiling_us 10" in refused.stderr


def test_options_of_an_hp_run_set_the_gpus_policy(root: Path) -> None:
    assert run(root, "--priority", "hp", "--max-slowdown", "1.3", "--sharing-cost", "1.07").returncode == 0
    assert (policies(root)["max_slowdown"], policies(root)["sharing_cost"]) == (1.3, 1.07)
    assert run(root, "--priority", "hp").returncode == 0
    assert policies(root)["max_slowdown"] == 1.3


@pytest.mark.parametrize("options", [[], ["--request", "0.4", "--limit", "0.6"]])
def test_a_be_programs_request_and_limit_are_set_on_its_slot(root: Path, options: list[str]) -> None:
    script = f"from orion.cli import agents; from pathlib import Path; snapshot = agents.ask(Path({str(root)!r}));"
    script += "print(*[(slot.request, slot.limit) for slot in snapshot.gpus[0].slots if slot.role == 2])"
    done = run(root, "--priority", "be", *options, program=(sys.executable, "-c", script))
    assert done.stdout.strip() == ("(0.4, 0.6)" if options else "(0.0, 0.0)"), done.stderr
