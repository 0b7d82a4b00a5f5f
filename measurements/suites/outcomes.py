"""The raw data of a suite, and what they say: which tests ended alike in the three roles, and which did not."""

from collections import Counter
from functools import cached_property
from typing import Any

from measurements.suites.files import OF_PROCESS, FileRun
from measurements.suites.running import ROLES, Results, Settings

LETTERS = {
    "passed": "p",
    "failed": "f",
    "error": "e",
    "skipped": "s",
    "xfailed": "x",
    "crashed": "c",
    "timed out": "t",
    "": "-",
}
""" The raw data have one letter for each role: "-" where the test did not run. """
WORDS = {letter: word or "not run" for word, letter in LETTERS.items()}
EXPLAINED = "psx-"  # letters of a test whose message nobody needs


def raw(head: dict[str, Any], name: str, tests: str, settings: Settings, results: Results) -> dict[str, Any]:
    """Return the raw data of one invocation."""
    first = {role: _flat(results.first[role]) for role in ROLES}
    second = {role: _flat(results.second[role]) for role in ROLES}
    names = list(dict.fromkeys(test for role in ROLES for test in first[role].outcomes))
    again = list(dict.fromkeys(test for role in ROLES for test in second[role].outcomes))
    letters = {test: _letters(first, test) for test in names}
    return {
        **head,
        **({"machine": "simulated GPU"} if settings.simulated else {}),
        "suite": name,
        "tests": tests,
        "cuda": results.versions.get("cuda", 0),
        "packages": results.versions.get("found", {}),
        "limit_s": settings.limit_s,
        "test_limit_s": settings.test_limit_s,
        "together": settings.together,
        "left_out": settings.suite.left_out,
        "roles": list(ROLES),
        "seconds": results.seconds,
        **({"stays": results.stays.record()} if settings.parks else {}),
        "joined": {} if settings.threads else {role: len(found) for role, found in results.joined.items()},
        "files": {file: [results.first[role].get(file, FileRun()).state for role in ROLES] for file in settings.files},
        "outcomes": letters,
        "outcomes_again": {test: _letters(second, test) for test in again},
        "messages": {test: _messages(first, test) for test in names if set(letters[test]) - set(EXPLAINED)},
    }


def _flat(files: dict[str, FileRun]) -> FileRun:
    whole = FileRun()
    for file in files.values():
        whole.outcomes.update(file.outcomes)
        whole.messages.update(file.messages)
    return whole


def _letters(by_role: dict[str, FileRun], test: str) -> str:
    return "".join(LETTERS[by_role[role].outcomes.get(test, "")] for role in ROLES)


def _messages(by_role: dict[str, FileRun], test: str) -> dict[str, str]:
    """Return the messages by role; one for all roles if they are equal."""
    messages = {role: by_role[role].messages.get(test, "") for role in ROLES}
    return {"all": messages["none"]} if len(set(messages.values())) == 1 else messages


class Comparison:
    """One file of raw data, compared test by test. Tests that did not run in all roles do not count."""

    def __init__(self, record: dict[str, Any]) -> None:
        """Store the raw data."""
        self.record = record
        self.outcomes: dict[str, str] = record["outcomes"]
        self.again: dict[str, str] = record["outcomes_again"]

    @cached_property
    def compared(self) -> dict[str, str]:
        """Tests that ended in all roles, and their letters; ends of processes only where one differs or crashed."""
        return {
            test: letters
            for test, letters in self.outcomes.items()
            if "-" not in letters and not (test.endswith(OF_PROCESS) and letters == "ppp")
        }

    @cached_property
    def alike(self) -> Counter[str]:
        """Number of tests by letter, of those that ended alike in all roles."""
        return Counter(letters[0] for letters in self.compared.values() if len(set(letters)) == 1)

    @cached_property
    def unsteady(self) -> list[str]:
        """Tests that ended differently at first, and alike when they ran once more."""
        return [test for test in self._differing if test not in self.different]

    @cached_property
    def different(self) -> list[str]:
        """Tests that ended differently by role both times, or were not run again."""
        return [test for test in self._differing if len(set(self.again.get(test, self.outcomes[test]))) > 1]

    @property
    def _differing(self) -> list[str]:
        return [test for test, letters in self.compared.items() if len(set(letters)) > 1]

    def sentence(self) -> str:
        """Return the result in one sentence."""
        joined = ", ".join(f"{number} processes as {role}" for role, number in self.record["joined"].items())
        return (
            f"{len(self.compared)} tests ended in all roles, {self.alike['p']} passed in all, "
            f"{len(self.different)} ended differently by role, {len(self.unsteady)} only at first; "
            f"{f'the agent saw {joined}' if joined else 'the roles were those of client threads'}"
        )
