/* Functions of the simulated driver that CUDA does not have, for all GPUs of the machine. Programs may call them
 * without cuInit, for instance by ctypes after dlopen. A call makes a machine if there is none and ORION_SIM_MAKE is
 * not 0. */
#ifndef ORION_SIM_H
#define ORION_SIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "orion-sim 1". Only the simulated driver has this symbol. */
extern const char orion_sim_driver[];

/* Number of simulated GPUs; -1: the machine's file cannot be opened or made. */
int orion_sim_gpu_count(void);

/* Writes "GPU-<uuid>" and its NUL into `buffer`, 41 bytes. 0: done, -1: no such GPU. */
int orion_sim_gpu_uuid(int gpu, char *buffer);

/* Returns the GPU's model name, a constant string. NULL: no such GPU. */
const char *orion_sim_gpu_name(int gpu);

/* Writes the size of the GPU's memory and the part in use, in bytes. 0: done, -1: no such GPU. */
int orion_sim_gpu_memory(int gpu, uint64_t *total, uint64_t *used);

/* Lists at most `count` clients that have a context on a GPU. `processes` gets process ids in the caller's pid
 * namespace, 0 for a process that is not visible there. `memory` gets the bytes that each client has on the GPU, those of its contexts included. Either
 * pointer may be NULL. Returns the number of clients, -1: no such GPU. */
int orion_sim_gpu_processes(int gpu, uint32_t *processes, uint64_t *memory, int count);

/* Whether MIG is enabled on a GPU, as configured when the machine was made. 1: enabled, 0: not, -1: no such GPU. The
 * GPU's CUDA functions behave the same in both cases, but for checkpoints. */
int orion_sim_gpu_mig(int gpu);

/* The NUMA node that a GPU is nearest to; -1: none, or no such GPU. */
int orion_sim_gpu_numa(int gpu);

/* 1: NVLink joins two GPUs, 0: it does not, -1: no such GPU. */
int orion_sim_gpu_linked(int gpu, int other);

/* 0: the GPU is present, 1: it is lost, -1: no such GPU. `events` gets the number of Xid events so far, `xid` the
 * number of the last Xid. Either pointer may be NULL. */
int orion_sim_gpu_health(int gpu, uint64_t *events, uint32_t *xid);

/* Inject faults, and repair them. Programs do not notice an Xid event. After the loss of a GPU, existing contexts
 * return CUDA_ERROR_UNKNOWN for ever, and new ones are refused with CUDA_ERROR_DEVICE_UNAVAILABLE. 0: done, -1: no such
 * GPU. */
int orion_sim_gpu_raise_xid(int gpu, uint32_t xid);
int orion_sim_gpu_set_lost(int gpu, int lost);

/* Inject faults of checkpoints: the next checkpoint, or restore, of any process returns this CUresult; 0 takes that
 * back. After a refused checkpoint the process stays locked; after a failed restore it is lost. 0: done, -1: no
 * machine. */
int orion_sim_fail_checkpoint(uint32_t result);
int orion_sim_fail_restore(uint32_t result);

/* How often this process has launched a CUgraphExec; -1: it is not one. */
int64_t orion_sim_graph_launches(const void *exec);

#ifdef __cplusplus
}
#endif

#endif
