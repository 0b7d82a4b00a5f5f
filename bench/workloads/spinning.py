"""Kernels that keep SMs busy for a given time.

They are PTX, loaded through the driver. torch's own sleep kernel was rejected: it has only one block. A run-time
compiler (Triton, NVRTC) was rejected, too: it is one more dependency, and has to be warmed up.

The kernel `elapsed` ends when the GPU's clock has reached a given time, so it does not get longer if other processes
run in between. The kernel `work` ends after a number of rounds. So interruptions make it longer, as they do with real
kernels.
"""

import ctypes

from orion.bench.workloads import driver

IMAGE = b"""
.version 7.0
.target sm_70
.address_size 64

.visible .entry elapsed(.param .u64 nanoseconds)
{
    .reg .u64 %begin, %now, %wanted;
    .reg .pred %early;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %early, %now, %wanted;
    @%early bra again;
    ret;
}

// The store is never executed: this xorshift of a word other than 0 never gives 0. Without the store, the assembler
// could remove the computation.
.visible .entry work(.param .u64 rounds)
{
    .reg .u64 %left, %nowhere;
    .reg .u32 %x, %y;
    .reg .pred %more, %never;
    ld.param.u64 %left, [rounds];
    mov.u32 %x, %tid.x;
    add.u32 %x, %x, 1;
again:
    shl.b32 %y, %x, 13;
    xor.b32 %x, %x, %y;
    shr.u32 %y, %x, 17;
    xor.b32 %x, %x, %y;
    shl.b32 %y, %x, 5;
    xor.b32 %x, %x, %y;
    sub.u64 %left, %left, 1;
    setp.ne.u64 %more, %left, 0;
    @%more bra again;
    setp.eq.u32 %never, %x, 0;
    mov.u64 %nowhere, 0;
    @%never st.global.u32 [%nowhere], %x;
    ret;
}
"""


class SpinKernel:
    """One of the kernels in the current context, with its number of blocks and its argument."""

    def __init__(self, name: str, blocks: int, threads: int, stream: int) -> None:
        """Load the kernel.

        Args:
            name: "elapsed" or "work".
            blocks: Blocks of each launch.
            threads: Threads of each block.
            stream: A CUstream; 0 is the default stream.
        """
        module = driver.made("cuModuleLoadData", IMAGE)
        self._function = driver.made("cuModuleGetFunction", module, name.encode())
        self._shape = (blocks, 1, 1, threads, 1, 1, 0)
        self._stream = ctypes.c_void_p(stream)
        self.argument = ctypes.c_uint64(1)
        self._parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self.argument))

    def launch(self) -> None:
        """Launch once with `argument`: nanoseconds for "elapsed", rounds for "work"."""
        driver.call("cuLaunchKernel", self._function, *self._shape, self._stream, self._parameters, None)
