"""Reads cases: a line is a case of `model:rate:objective_ms`, or the file is glet's task CSV with one case.

glet's task CSV has the number of services in the first line, and `model,rate,objective_ms,` in each line after it. A
line that breaks the form is refused and never left out, because the number of a line is the number of its case.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from orion.errors import Unreadable
from orion.planning.serving.cases import Model, Service
from orion.simulation.traces.numbers import number, shown
from orion.simulation.traces.text import numbered


def read(path: Path, models: Mapping[int, Model]) -> list[tuple[Service, ...]]:
    """Return the cases of a file in their order.

    Raises:
        Unreadable: with the file, the line and the reason.
    """
    lines = list(numbered(path))
    if not lines:
        raise Unreadable(f"{path} has no case: write lines such as 6:100:66 13:200:22")
    if lines[0][1].strip(" ,").isdecimal():
        return [_glet(path, lines, models)]
    cases = []
    for line, text in lines:
        try:
            cases.append(_case([each.split(":") for each in text.split()], "model:rate:objective_ms", models))
        except ValueError as error:
            raise Unreadable(f"{path}, line {line}: {error}") from error
    return cases


def _glet(path: Path, lines: list[tuple[int, str]], models: Mapping[int, Model]) -> tuple[Service, ...]:
    count, rows = int(lines[0][1].strip(" ,")), []
    for line, text in lines[1:]:
        try:
            rows.append(text.removesuffix(",").split(","))
            _case(rows, "model,rate,objective_ms,", models)
        except ValueError as error:
            raise Unreadable(f"{path}, line {line}: {error}") from error
    if len(rows) != count:
        raise Unreadable(f"{path}, line {lines[0][0]}: it says {count} services, and {len(rows)} follow: correct it")
    return _case(rows, "", models)


def _case(rows: Iterable[list[str]], form: str, models: Mapping[int, Model]) -> tuple[Service, ...]:
    services: list[Service] = []
    for row in rows:
        if len(row) != 3:
            raise ValueError(f"{shown(':'.join(row))} is not {form}: write three numbers")
        model = _model(row[0], models)
        if any(model == service.model for service in services):
            raise ValueError(f"model {model} occurs twice: add the two rates")
        objective_ms = number(row[2], "the objective")
        if not objective_ms:
            raise ValueError("the objective is 0 ms, which no service can hold: give milliseconds")
        services.append(Service(model, number(row[1], "the rate"), objective_ms))
    return tuple(services)


def _model(text: str, models: Mapping[int, Model]) -> int:
    by_name = {model.name: key for key, model in sorted(models.items(), reverse=True)}
    found = int(text) if text.strip().isdecimal() and len(text) < 10 else by_name.get(text.strip(), -1)
    if found not in models:
        known = ", ".join(f"{key} ({models[key].name})" for key in sorted(models))
        raise ValueError(f"there is no model {shown(text.strip())}: choose one of {known}")
    return found
