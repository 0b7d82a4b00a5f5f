/* One GPU through the CUDA driver, and one kernel on it that takes as long as it is told.
 *
 * The driver is loaded at run time, so `--help` works where there is none. A real driver takes the kernel as PTX, the
 * simulated one as text; which of them is there shows by trying. Whatever fails ends the program: it prints a line of
 * JSON that names the call, and exits with status 1. */
#ifndef WORKLOAD_GPU_H
#define WORKLOAD_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu {
    char name[96];
    char uuid[41]; /* "GPU-..." */
    int sms;
    bool simulated;
};

/* Take a device and `memory` bytes of it, and load the kernel, which will fill `sms` SMs (0: all of them). */
struct gpu gpu_open(int device, size_t memory, int sms);

/* Queue kernels of so many microseconds, one after the other. */
void gpu_launch(uint64_t kernels, uint64_t microseconds);

/* Wait for all that was queued. */
void gpu_wait(void);

/* Remember what is queued by now under a number, 0 or 1, and wait until that is done. */
void gpu_mark(int number);
void gpu_wait_mark(int number);

#endif
