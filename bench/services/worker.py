"""The process that executes a server's or an engine's commands; see `orion.bench.workers` for how it is commanded.

    python -m orion.bench.services.worker batches|engine SETTINGS      settings as JSON

Commands, with times in seconds of CLOCK_MONOTONIC, so that processes start at the same instant without messages:

    {"do": "profile", "begin": T, "service", "batch", "gap", "seconds", "samples", "seed"}    times of single batches
    {"do": "loop", "begin": T, "end": T, "service", "batch"}                 batches back to back
    {"do": "serve", "begin": T, "until": S, "queues": [...]}                 the services' requests as they arrive
    {"do": "iterations", "begin": T, "points": [...], "repeat"}              times of single iterations of the engine
    {"do": "engine", "begin": T, "until": S, "requests": [...]}              the engine's requests as they arrive

Replies hold times in whole microseconds from `begin`.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from orion.bench.services import engine, serving
from orion.bench.services.scenario import Engine, Service
from orion.bench.workers.process import Replies, configure_process, end_with, stop_collecting

MOST_SAMPLES = 300
MOST_SECONDS = 4.0  # for one point of the profile
WARM_UP = 3


def main(arguments: list[str]) -> int:
    """Set up, reply, execute commands until standard input ends."""
    replies = Replies()
    configure_process()
    try:
        kind, settings = arguments[0], json.loads(arguments[1])
        obey = {"batches": _batches, "engine": _engine}[kind](settings)
        stop_collecting()
        replies.send({"ready": True, **obey({"do": "about"})})
        for line in sys.stdin:
            replies.send(obey(json.loads(line)))
    except Exception as error:
        end_with(error)
    return 0


Obey = Callable[[dict[str, Any]], dict[str, Any]]


def _batches(settings: dict[str, Any]) -> Obey:
    services = {name: Service.model_validate(fields) for name, fields in settings["services"].items()}
    models: Any
    if settings["device"] == "fake":
        from orion.bench.services.fake import FakeModels

        models = FakeModels(services, settings["sizes"])
    else:
        from orion.bench.services.models import Models

        models = Models(services, settings["sizes"], settings["device"])

    def obey(command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] == "about":
            return {"gpu": models.gpu}
        with models.throughout():
            for each in command.get("queues", []):  # the first batches raise the clocks
                for _ in range(WARM_UP):
                    models.execute(each["service"], 1)
            serving.wait_until(command["begin"])
            return {"profile": _profile, "loop": _loop, "serve": _serve}[command["do"]](models, command)

    return obey


def _profile(models: Any, command: dict[str, Any]) -> dict[str, Any]:
    """Time single batches, each after a random gap of this mean; a gap of 0: back to back."""
    service, batch, gap = command["service"], command["batch"], command["gap"]
    draw, clock = random.Random(command["seed"]), time.monotonic
    times: list[int] = []
    for _ in range(WARM_UP):
        models.execute(service, batch)
    begin = clock()
    while True:
        spent = clock() - begin
        enough = spent >= command["seconds"] and len(times) >= command["samples"]
        if enough or len(times) >= MOST_SAMPLES or spent >= MOST_SECONDS:
            return {"times": times}
        if gap:
            serving.wait_until(clock() + draw.expovariate(1 / gap))
        start = clock()
        models.execute(service, batch)
        times.append(_microseconds(clock() - start))


def _loop(models: Any, command: dict[str, Any]) -> dict[str, Any]:
    service, batch, clock = command["service"], command["batch"], time.monotonic
    ends: list[int] = []
    while clock() < command["end"]:
        models.execute(service, batch)
        ends.append(_microseconds(clock() - command["begin"]))
    return {"ends": ends}


def _serve(models: Any, command: dict[str, Any]) -> dict[str, Any]:
    begin = command["begin"]
    queues = [serving.Queue(**fields) for fields in command["queues"]]
    log = serving.serve(
        queues,
        models.execute,
        lambda: time.monotonic() - begin,
        lambda instant: serving.wait_until(begin + instant),
        command["until"],
    )
    return {
        "queue": log.queue,
        "start": [_microseconds(each) for each in log.start],
        "end": [_microseconds(each) for each in log.end],
        "size": log.size,
        "served": [queue.head for queue in queues],
    }


def _engine(settings: dict[str, Any]) -> Obey:
    wanted = Engine.model_validate_json(json.dumps(settings["engine"]))
    decoder: Any
    if settings["device"] == "fake":
        from orion.bench.services.fake import FakeDecoder

        decoder = FakeDecoder(wanted)
    else:
        from orion.bench.services.decoder import SlotDecoder

        decoder = SlotDecoder(wanted, [], settings["device"])

    def obey(command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] == "about":
            return {"gpu": decoder.gpu}
        serving.wait_until(command["begin"])
        with decoder.throughout():
            return {"iterations": _iterations, "engine": _serve_engine}[command["do"]](decoder, wanted, command)

    return obey


def _iterations(decoder: Any, settings: Engine, command: dict[str, Any]) -> dict[str, Any]:
    """Time iterations with this many prompt tokens, and sequences that decode from a position."""
    times: list[list[int]] = []
    for tokens, sequences, position in command["points"]:
        decoder.place(sequences, position)
        decoding = list(range(sequences))
        chunks = [engine.Chunk(sequences, 0, tokens, last=False)] if tokens else []
        for _ in range(WARM_UP):
            decoder.step(chunks, decoding)
        found, start = list[int](), time.monotonic()
        for _ in range(command["repeat"]):
            decoder.step(chunks, decoding)
            end = time.monotonic()
            found.append(_microseconds(end - start))
            start = end
        times.append(found)
    return {"times": times}


def _serve_engine(decoder: Any, settings: Engine, command: dict[str, Any]) -> dict[str, Any]:
    begin = command["begin"]
    requests = [engine.Request(*each) for each in command["requests"]]
    decoder.restart([request.prompt for request in requests])
    log = engine.run(
        requests,
        engine.Limits(settings.max_sequences, settings.tokens_per_step, settings.kv_tokens),
        decoder,
        lambda: time.monotonic() - begin,
        lambda instant: serving.wait_until(begin + instant),
        command["until"],
    )
    served = sorted(log.end)
    return {
        "served": served,
        "admitted": [_microseconds(log.admitted[each]) for each in served],
        "first": [_microseconds(log.first[each]) for each in served],
        "end": [_microseconds(log.end[each]) for each in served],
        "iterations": [[_microseconds(start), _microseconds(end), *rest] for start, end, *rest in log.iterations],
    }


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
