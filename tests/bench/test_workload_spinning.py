"""Loads and launches the spinning kernels on the simulated driver, which reads its own text format instead of PTX."""

import subprocess
import sys

from orion.bench.managed import machine

PROGRAM = """
import time
from cuda.bindings import driver
from orion.bench.workloads import spinning
from orion.errors import Unavailable

spinning.IMAGE = b"orion-sim 1\\nkernel elapsed duration_us=@0 sms=132 params=8\\n"
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1])
stream = driver.cuStreamCreate(1)[1]
kernel = spinning.SpinKernel("elapsed", 264, 1024, int(stream))
for microseconds in (3000, 30000):
    kernel.argument.value = microseconds
    begin = time.monotonic()
    kernel.launch()
    driver.cuStreamSynchronize(stream)
    assert (time.monotonic() - begin) * 1e6 >= microseconds
try:
    spinning.SpinKernel("other", 1, 1, 0)
except Unavailable as error:
    print(error)
"""


def test_a_kernel_runs_as_long_as_its_argument_says_and_errors_name_the_call() -> None:
    with machine(simulated=True) as environment:
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cuModuleGetFunction answered 500\n"
