"""be slots whose kernels differ in length, beside an hp with much short work that waits for what is in flight."""

import pytest

from tests.hook.gpu_time import shares_of_the_next, start_traced
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import warm

pytestmark = pytest.mark.quiet

LONG_US, SHORT_US = 4600, 300
HP_US, EVERY_US = 200, 4000
SECONDS = 6.0


@pytest.mark.parametrize("known", [True, False], ids=["known kernels", "kernels that were never without hp"])
def test_a_kernel_that_hp_waits_for_is_charged_to_its_slot(machine: Machine, known: bool) -> None:
    timelines = {}
    hp = machine.start("hp-0")
    if not known:
        hp.send(f"serve 1000000 {HP_US} {EVERY_US} 1")
    for slot, kernel_us in (("be-0", LONG_US), ("be-1", SHORT_US)):
        client, timelines[slot] = start_traced(machine, slot)
        if known:
            warm(client, kernel_us)
        client.send(f"flood 300 {kernel_us}")
    if known:
        hp.send(f"serve 1000000 {HP_US} {EVERY_US} 1")
    shares_of_the_next(2.0, timelines)
    found = shares_of_the_next(SECONDS, timelines)
    what = ", ".join(f"{share:.3f}" for share in found.values())
    figure(f"shares of kernels of 4.6 and of 0.3 ms beside hp: {what}", list(found.values()), "")
    assert found["be-0"] < found["be-1"] + 0.04, found  # 0.1 more, if its kernels in flight were taken for hp's work
