"""A Python program whose threads are clients; test_inprocess_api.py runs one function of it with the hook preloaded."""

import sys
import threading
import time
from collections.abc import Callable

from cuda.bindings import driver

import orion.inprocess
from orion.inprocess import Client, Scheduler, SchedulerError


def checked(answer: tuple[object, ...]) -> object:
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) > 1 else None


class Gpu:
    """The simulated GPU's primary context, and kernels that take some milliseconds."""

    def __init__(self) -> None:
        checked(driver.cuInit(0))
        self.context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(0))))
        self.use()
        self._kernels: dict[float, object] = {}
        for milliseconds in (0.1, 1, 30, 300):
            image = f"orion-sim 1\nkernel work duration_us={round(milliseconds * 1000)} sms=60 params=\n"
            module = checked(driver.cuModuleLoadData(image.encode() + b"\0"))
            self._kernels[milliseconds] = checked(driver.cuModuleGetFunction(module, b"work"))

    def use(self) -> None:
        checked(driver.cuCtxSetCurrent(self.context))

    def launch(self, milliseconds: float, stream: object = 0) -> None:
        kernel = self._kernels[milliseconds]
        checked(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))

    def synchronise(self) -> float:
        checked(driver.cuStreamSynchronize(0))
        return time.monotonic()


def in_thread(gpu: Gpu, scheduler: Scheduler, index: int, body: Callable[[Client], None]) -> threading.Thread:
    def run() -> None:
        gpu.use()
        with scheduler.client(index) as client:
            body(client)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def be_waits_for_hp() -> None:
    gpu, ends, launched = Gpu(), {}, threading.Event()

    def hp(_: Client) -> None:
        gpu.launch(300)  # so long that be's thread starts meanwhile even on a busy machine
        launched.set()
        ends["hp"] = gpu.synchronise()

    def be(client: Client) -> None:
        launched.wait()
        gpu.launch(30, client.stream)  # so long that hp's thread reads the clock meanwhile
        ends["be"] = gpu.synchronise()

    with Scheduler(clients=["be", "hp"], policy="gate") as scheduler:
        for thread in [in_thread(gpu, scheduler, 1, hp), in_thread(gpu, scheduler, 0, be)]:
            thread.join()
        assert ends["be"] > ends["hp"]
        figures = scheduler.snapshot()
        assert [each.role for each in figures] == ["be", "hp"]
        assert figures[0].gated_launches == 1
        assert figures[0].gated_seconds > 0.015
        assert figures[1].busy_seconds > 0.25
        scheduler.set_policy(policy="none")
        launched.clear()
        for thread in [in_thread(gpu, scheduler, 1, hp), in_thread(gpu, scheduler, 0, be)]:
            thread.join()
        assert ends["be"] < ends["hp"]
        assert (scheduler.policy, scheduler.max_slowdown) == ("none", 1.0)


def a_budget_releases_waiting_launches() -> None:
    gpu, ends, launched, waits = Gpu(), {}, threading.Event(), threading.Event()

    def hp(_: Client) -> None:
        streams = [checked(driver.cuStreamCreate(1)) for _ in range(2)]
        gpu.launch(30, streams[0])
        launched.set()
        deadline, i = time.monotonic() + 60, 0
        # hp is never idle: the hook cuts its time into slices after two seconds, and be may run in the sixth one.
        while "be" not in ends and time.monotonic() < deadline:
            gpu.launch(30, streams[(i + 1) % 2])
            checked(driver.cuStreamSynchronize(streams[i % 2]))
            i += 1
        ends["hp"] = time.monotonic() - deadline

    def be(client: Client) -> None:
        for _ in range(4):
            gpu.launch(0.1, client.stream)
            gpu.synchronise()
        launched.wait()
        waits.set()
        gpu.launch(0.1, client.stream)
        ends["be"] = gpu.synchronise()

    with Scheduler(clients=["be", "hp"], policy="orion") as scheduler:
        first = in_thread(gpu, scheduler, 0, be)
        while scheduler.snapshot()[0].launches < 4:
            time.sleep(0.001)
        second = in_thread(gpu, scheduler, 1, hp)
        waits.wait()
        time.sleep(0.3)  # be waits under the first policy
        scheduler.set_policy(max_slowdown=50)
        first.join()
        second.join()
    assert ends["hp"] < 0, "be waited until hp was idle"


def nested_bindings() -> None:
    gpu = Gpu()
    with Scheduler(clients=3) as scheduler:
        with scheduler.client(0) as outer:
            gpu.launch(1)
            with scheduler.client(2) as inner:
                assert inner.role == "hp"
                assert inner.stream != outer.stream
                gpu.launch(1)
            gpu.launch(1)
        gpu.launch(1)
        gpu.synchronise()
        assert [each.launches for each in scheduler.snapshot()] == [2, 0, 1]
        with scheduler.client(1) as bound:
            scheduler.stop()
        try:
            scheduler.snapshot()
        except SchedulerError:
            pass
        else:
            raise AssertionError("a stopped scheduler has no figures")
        assert bound.role == "be"


Refusals = list[tuple[type[Exception], Callable[[], object]]]


def check_that_all_raise(calls: Refusals) -> None:
    for error, call in calls:
        try:
            call()
        except error as refusal:
            print(refusal)
        else:
            raise AssertionError(f"no {error.__name__}")


def wrong_arguments() -> None:
    refused: Refusals = [
        (ValueError, lambda: Scheduler(clients=["hp", "vip"])),
        (ValueError, lambda: Scheduler(clients=0)),
        (ValueError, lambda: Scheduler(policy="fifo")),
        (ValueError, lambda: Scheduler(max_slowdown=0.9)),
        (SchedulerError, lambda: Scheduler(clients=99)),
    ]
    check_that_all_raise(refused)
    with Scheduler(clients=2) as scheduler:
        refused = [
            (SchedulerError, Scheduler),
            (IndexError, lambda: scheduler.client(2).__enter__()),
            (SchedulerError, lambda: Client(0, "be", scheduler).stream),  # no context yet
            (ValueError, lambda: scheduler.set_policy(policy="")),
        ]
        check_that_all_raise(refused)
    stopped: Refusals = [
        (SchedulerError, scheduler.snapshot),
        (SchedulerError, lambda: scheduler.client(0).__enter__()),
        (SchedulerError, lambda: scheduler.set_policy(policy="gate")),
        (SchedulerError, lambda: Client(0, "be", scheduler).stream),
    ]
    check_that_all_raise(stopped)
    with Scheduler(clients=["hp"]):
        check_that_all_raise(stopped)  # they are not calls on the scheduler that runs now


def outlived_bindings() -> None:
    gpu = Gpu()
    stopped = Scheduler(clients=2)
    with stopped.client(1) as bound:
        stopped.stop()
        with Scheduler(clients=2) as scheduler:
            with scheduler.client(0):
                gpu.launch(1)
            gpu.launch(1)  # the outer block's client is none of this scheduler's
            gpu.synchronise()
            assert [each.launches for each in scheduler.snapshot()] == [1, 0]
            check_that_all_raise([(SchedulerError, lambda: bound.stream)])


def in_a_slot() -> None:
    check_that_all_raise([(SchedulerError, Scheduler)])


def not_preloaded() -> None:
    try:
        orion.inprocess.Scheduler()
    except SchedulerError as error:
        print(error)
    else:
        raise AssertionError("a scheduler without a hook")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
