/* What a be client's record says of its work: GPU time, and kernels that hp may have to wait for. */
#ifndef ORION_ACCOUNTS_H
#define ORION_ACCOUNTS_H

#include <stdint.h>

struct orion_gpu;
struct orion_process;

/* Work of that expected cost has completed, passed_ns after its launch (which stands for work of unknown cost). */
void orion_account_gpu_time(struct orion_gpu *gpu, uint64_t cost_ns, uint64_t passed_ns);

/* A sample says that one kernel took so long: people should know the longest's name. */
void orion_account_long_kernel(struct orion_process *process, struct orion_gpu *gpu, uint64_t identity, uint64_t measured_ns);

#endif
