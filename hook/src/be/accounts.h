/* Writes two facts about a be client's work into its record page: its GPU time, and its longest kernel, which hp may
 * have to wait for. */
#ifndef ORION_ACCOUNTS_H
#define ORION_ACCOUNTS_H

#include <stdint.h>

struct orion_gpu;
struct orion_process;

/* Adds completed work to the client's GPU time: a stream's work from begin_ns to end_ns, of CLOCK_MONOTONIC, of which ran_on_ns were
 * after the slot's turn. The caller holds the ledger. */
void orion_account_gpu_time(struct orion_gpu *gpu, uint64_t begin_ns, uint64_t end_ns, uint64_t ran_on_ns);

/* A sample measured this duration of a kernel. If the kernel is the longest so far, its name goes into the record
 * page. */
void orion_account_long_kernel(struct orion_process *process, struct orion_gpu *gpu, uint64_t identity, uint64_t measured_ns);

#endif
