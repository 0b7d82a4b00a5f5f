"""Synergy's generator: the same jobs as in its recordings, and its statistics."""

import dataclasses
import json
import math
import statistics
from collections import Counter
from pathlib import Path

import pytest

from orion.errors import Invalid
from orion.planning.queues.demands import Profile
from orion.simulation.cluster.generate import CLASSES, Recipe, generate, lines
from orion.simulation.cluster.jobs import Job

SYNERGY = Path(__file__).parents[3] / "shared" / "data" / "synergy"
PROFILES = {model: Profile(model, 0.5, 3, 62.5, 1.0) for models in CLASSES for model in models}


def synergys_profiles() -> dict[str, Profile]:
    tables = json.loads((SYNERGY / "profiles_v100.json").read_text())["models"]
    found = {}
    for model in PROFILES:
        table = tables[f"{model}_1"]
        found[model] = Profile(model, table["iter_time"], table["cpus"], table["mem"], table["speedup"])
    return found


@pytest.mark.skipif(not SYNERGY.is_dir(), reason="the reference data is not beside this checkout")
@pytest.mark.parametrize(
    ("recording", "recipe"),
    [
        ("synth_single_7jph_seed42.1000.trace", Recipe(1000, 7.0, 42)),
        ("synth_multi_3.5jph_seed42.1000.trace", Recipe(1000, 3.5, 42, gpu_mix="multi")),
    ],
)
def test_recordings_of_synergys_generator_come_out_line_for_line(recording: str, recipe: Recipe) -> None:
    assert "".join(lines(generate(recipe, synergys_profiles()))) == (SYNERGY / recording).read_text()


def test_a_seed_decides_everything_and_a_shorter_list_is_the_begin_of_a_longer_one() -> None:
    recipe = Recipe(500, 7.0, 5, gpu_mix="multi")
    jobs = generate(recipe, PROFILES)
    assert generate(recipe, PROFILES) == jobs
    assert generate(dataclasses.replace(recipe, count=50), PROFILES) == jobs[:50]
    assert generate(dataclasses.replace(recipe, seed=6), PROFILES) != jobs


def test_a_static_recipe_changes_only_arrivals() -> None:
    recipe = Recipe(300, 7.0, 5)
    moving, still = generate(recipe, PROFILES), generate(dataclasses.replace(recipe, is_static=True), PROFILES)
    assert [job.arrival_s for job in still] == [round(number * 0.001, 3) for number in range(300)]
    assert [job._replace(arrival_s=0.0) for job in still] == [job._replace(arrival_s=0.0) for job in moving]


def test_rates_durations_and_gpus_are_as_documented() -> None:
    jobs = generate(Recipe(20_000, 6.0, 1, gpu_mix="multi"), PROFILES)
    assert jobs[-1].arrival_s / len(jobs) == pytest.approx(600, rel=0.03)
    assert all(job.arrival_s.is_integer() for job in jobs)
    durations_h = [job.iterations * 0.5 / 3600 for job in jobs]
    assert statistics.fmean(durations_h) == pytest.approx(16.77, rel=0.03)
    assert min(durations_h) * 60 >= math.floor(10**1.5)
    assert max(durations_h) * 60 <= 10**4
    assert sum(duration > 1000 / 60 for duration in durations_h) / len(jobs) == pytest.approx(0.2, abs=0.01)
    mix = Counter(job.gpus for job in jobs)
    for gpus, part in ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)):
        assert mix[gpus] / len(jobs) == pytest.approx(part, abs=0.01)
    assert {job.gpus for job in generate(Recipe(100, 6.0), PROFILES)} == {1}


@pytest.mark.parametrize("split", [(20, 70, 10), (33, 33, 33), (50, 0, 50), (0, 1, 0), (0, 50, 50), (2, 7, 1)])
def test_classes_get_their_parts_and_models_of_a_class_take_turns(split: tuple[float, float, float]) -> None:
    models = [job.model for job in generate(Recipe(2_000, 6.0, split=split), PROFILES)]
    for part, known in zip(split, CLASSES, strict=True):
        chosen = [model for model in models if model in known]
        assert len(chosen) == pytest.approx(2_000 * part / sum(split), abs=2)
        counts = Counter(chosen)
        assert not chosen or max(counts.values()) - min(counts.values()) <= 1


def test_a_recording_keeps_milliseconds() -> None:
    jobs = [Job(0, "gnmt", 0.0, 5, 1), Job(1, "m5", 0.001, 7.5, 2)]
    assert "".join(lines(jobs)) == "0,gnmt,0,5,1\n1,m5,0.001,7.5,2\n"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"count": 0}, "0 jobs cannot be generated"),
        ({"rate_per_h": 0.0}, "the rate 0.0 is not possible"),
        ({"rate_per_h": math.nan}, "the rate nan is not possible"),
        ({"rate_per_h": -1.0}, "the rate -1.0 is not possible"),
        ({"split": (0, 0, 0)}, "the split 0,0,0 is not possible"),
        ({"split": (1, 2)}, "give three parts"),
        ({"split": (1, -2, 3)}, "give three parts"),
        ({"gpu_mix": "eight"}, "the GPU mix 'eight' is unknown: choose single or multi"),
    ],
)
def test_an_impossible_recipe_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        dataclasses.replace(Recipe(1, 1.0), **changed)  # type: ignore[arg-type]  # wrong on purpose


def test_a_missing_profile_is_named() -> None:
    with pytest.raises(Invalid, match="jobs of m5, and the profiles lack these models"):
        generate(Recipe(1, 1.0), {model: profile for model, profile in PROFILES.items() if model != "m5"})
