"""Quantities, numbers and durations: all forms of Kubernetes and Go are read exactly; any other text is an error."""

import contextlib
import copy
import json
import pickle
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.quantities import Memory, Quantity

UNITS = {"": 1, "k": 10**3, "Ki": 2**10, "M": 10**6, "Mi": 2**20, "Gi": 2**30, "T": 10**12, "Ti": 2**40, "Ei": 2**60}
TIMES = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


@given(st.integers(0, 10**9), st.sampled_from(sorted(UNITS)))
def test_a_quantity_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert Quantity(f"{number}{unit}").bytes == number * UNITS[unit]


@given(st.decimals(-(10**6), 10**6, places=6))
def test_a_decimal_quantity_is_exact(number: Decimal) -> None:
    assert Quantity(f"{number:f}").value == number


@given(st.integers(0, 2**63 - 1))
def test_bytes_are_written_and_read_again(amount: int) -> None:
    text = Quantity.of_bytes(amount)
    assert text.bytes == amount
    assert Quantity.read(amount).bytes == amount


@given(st.integers(0, 10**9))
def test_thousandths_are_written_and_read_again(thousandths: int) -> None:
    number = Number.of_milli(thousandths)
    assert number.milli == thousandths
    assert Number.read(json.loads(str(number))).milli == thousandths


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", "1000"), ("1E3", "1000"), ("1E", "1e18"), ("5.", "5"), (".5", "0.5"), ("+1", "1"), ("-1", "-1"),
     ("1e-3", "0.001"), ("100n", "1e-7"), ("1u", "1e-6"), ("0.5Gi", "536870912"), ("0", "0")],
)  # fmt: skip
def test_all_forms_of_kubernetes_are_read(text: str, value: str) -> None:
    assert Quantity(text).value == Decimal(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.9999999999999999999999Mi", "1048576"), ("1e-99", "1e-9"), ("-0.1n", "-1e-9"), ("0.0000000001", "1e-9"),
     ("99999999999999999999999999999Ei", str((10**29 - 1) * 1024**6))],
)  # fmt: skip
def test_what_is_finer_than_a_billionth_is_rounded_away_from_0_as_kubernetes_does(text: str, value: str) -> None:
    assert Quantity(text).value == Decimal(value)


def test_a_fraction_of_a_byte_is_a_byte() -> None:
    assert Quantity("100m").bytes == 1


@given(st.text(max_size=40))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert Quantity(text) == text


@pytest.mark.parametrize("text", ["", "Gi", "1GB", "8 Gi", "1_000", "0x10", "1\n", "٣", "1e", "1Kim", "--1", "9" * 33])
def test_a_text_that_is_not_a_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be a quantity such as 8Gi"):
        Quantity(text)


@pytest.mark.parametrize(
    ("text", "means"), [("8GiB", "8Gi"), ("512MiB", "512Mi"), ("4GB", "4G"), ("1.5TB", "1.5T"), ("7kB", "7k")]
)
def test_memory_may_be_written_with_a_b(text: str, means: str) -> None:
    assert Memory(text).bytes == Memory(means).bytes == Quantity(means).bytes
    assert Memory(text) == text


@pytest.mark.parametrize("text", ["", "B", "GiB", "8gib", "8KB", "8Gib", "8BGi", "8GiBB", "8 GiB"])
def test_a_text_that_is_not_an_amount_of_memory_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be an amount of memory such as 8Gi, 8GiB, 4GB or a number of bytes"):
        Memory(text)


@pytest.mark.parametrize("value", [1.3, 1, 0.001, -0.5])
def test_a_number_needs_no_quotes(value: float) -> None:
    number = Number.read(value)
    assert (number.value, number.milli) == (value, round(value * 1_000))
    assert TypeAdapter(Number).dump_json(number) == json.dumps(value).encode()


@pytest.mark.parametrize("value", ["1.3", "300m", True, None, [], float("nan"), float("inf")])
def test_a_value_that_is_not_a_number_is_rejected(value: object) -> None:
    with pytest.raises(ValueError, match="must be a number"):
        Number.read(value)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(TIMES))), min_size=1, max_size=3))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert Duration(text).nanoseconds == sum(number * TIMES[unit] for number, unit in parts)


@given(st.integers(0, 10**15))
def test_nanoseconds_are_written_and_read_again(nanoseconds: int) -> None:
    assert Duration.of(nanoseconds).nanoseconds == nanoseconds


@given(st.text(max_size=40))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert Duration(text).nanoseconds >= 0


@pytest.mark.parametrize(
    "text", ["", "1", "0", "ms", "-1ms", "1 ms", "1ms ", "1ms\n", "1d", ".5s", "1,5s", "٣s", "PT1"]
)
def test_a_text_that_is_not_a_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as 400us"):
        Duration(text)


@pytest.mark.parametrize("value", [5, 1.5, True, None, [], b"1s"])
def test_a_duration_has_a_unit_and_is_text(value: object) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        Duration.read(value)


def test_durations_are_microseconds_rounded_up() -> None:
    assert [Duration(text).microseconds for text in ("400us", "1.5us", "1ns", "0s")] == [400, 2, 1, 0]


@pytest.mark.parametrize("value", [Quantity("1.50"), Duration("1m30s")])
def test_the_text_is_kept(value: Quantity | Duration) -> None:
    adapter = TypeAdapter(type(value))
    assert adapter.dump_python(adapter.validate_python(str(value)), mode="json") == str(value)
    assert adapter.validate_json(f'"{value}"').value == value.value
    for copied in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert (copied, copied.value) == (value, value.value)
    with pytest.raises(ValidationError):
        adapter.validate_python({})
