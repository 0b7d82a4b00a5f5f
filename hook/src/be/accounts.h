/* What a be client's record page says of its work: its GPU time, and long kernels that hp may have to wait for. */
#ifndef ORION_ACCOUNTS_H
#define ORION_ACCOUNTS_H

#include <stdint.h>

struct orion_gpu;
struct orion_process;

/* Counts completed work. cost_ns: its expected time. passed_ns: the time since its launch, counted if the expected time
 * was unknown. */
void orion_account_gpu_time(struct orion_gpu *gpu, uint64_t cost_ns, uint64_t passed_ns);

/* A sample measured this duration of a kernel. If the kernel is the longest so far, its name goes into the record
 * page. */
void orion_account_long_kernel(struct orion_process *process, struct orion_gpu *gpu, uint64_t identity, uint64_t measured_ns);

#endif
