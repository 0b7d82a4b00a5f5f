/* What the simulated driver tells beside CUDA, of all GPUs of the machine; callable without cuInit, for instance by
 * ctypes after dlopen. Asking makes a machine if there is none and ORION_SIM_MAKE is not 0. */
#ifndef ORION_SIM_H
#define ORION_SIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "orion-sim 1": there only in the simulated driver. */
extern const char orion_sim_driver[];

/* Number of simulated GPUs; -1: the machine's file cannot be had. */
int orion_sim_gpu_count(void);

/* "GPU-<uuid>" and its NUL into `buffer`, 41 bytes. 0: done, -1: no such GPU. */
int orion_sim_gpu_uuid(int gpu, char *buffer);

/* A constant string, NULL: no such GPU. */
const char *orion_sim_gpu_name(int gpu);

/* Bytes. 0: done, -1: no such GPU. */
int orion_sim_gpu_memory(int gpu, uint64_t *total, uint64_t *used);

/* The clients with a context on a GPU, at most `count` of them: process ids as the caller's pid namespace has them into
 * `processes`, 0 for one that cannot be seen from it, and the bytes that each has there into `memory` (either may be
 * NULL). Returns how many there are, -1: no such GPU. */
int orion_sim_gpu_processes(int gpu, uint32_t *processes, uint64_t *memory, int count);

/* As whoever made the machine said. 1: MIG is enabled, 0: it is not, -1: no such GPU. Programs see no difference. */
int orion_sim_gpu_mig(int gpu);

/* The NUMA node that a GPU is nearest to; -1: none, or no such GPU. */
int orion_sim_gpu_numa(int gpu);

/* 1: NVLink joins two GPUs, 0: it does not, -1: no such GPU. */
int orion_sim_gpu_linked(int gpu, int other);

/* 0: the GPU is there, 1: it is lost, -1: no such GPU. How many Xid events it ever had goes into `events`, the number of
 * the last into `xid` (either may be NULL). */
int orion_sim_gpu_health(int gpu, uint64_t *events, uint32_t *xid);

/* Make a GPU sick, and well again. Programs do not notice an Xid event. Of a lost GPU they get CUDA_ERROR_UNKNOWN, for
 * ever in contexts that they have, or CUDA_ERROR_DEVICE_UNAVAILABLE. 0: done, -1: no such GPU. */
int orion_sim_gpu_raise_xid(int gpu, uint32_t xid);
int orion_sim_gpu_set_lost(int gpu, int lost);

#ifdef __cplusplus
}
#endif

#endif
