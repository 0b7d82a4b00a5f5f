/* One GPU through the CUDA driver, and one kernel on it that takes a configured time.
 *
 * The driver is loaded at run time, so `--help` works without a driver. A real driver takes the kernel as PTX, the
 * simulated driver takes it as text; gpu_open tries both. Any error ends the program: it prints a line of JSON that
 * names the call, and exits with status 1. */
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

/* Opens a device, allocates `memory` bytes on it, and loads the kernel, which will fill `sms` SMs (0: all of them). */
struct gpu gpu_open(int device, size_t memory, int sms);

/* Queues kernels of `microseconds` each, one after the other. */
void gpu_launch(uint64_t kernels, uint64_t microseconds);

/* Waits for all queued kernels. */
void gpu_wait(void);

/* gpu_mark records the kernels queued so far under a number, 0 or 1; gpu_wait_mark waits until these are done. */
void gpu_mark(int number);
void gpu_wait_mark(int number);

#endif
