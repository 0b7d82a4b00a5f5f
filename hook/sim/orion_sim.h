/* What the simulated driver tells beside CUDA; callable without cuInit, for instance by ctypes after dlopen.
 *
 * None of it changes the machine, but asking makes one if there is none. */
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

/* Process ids (each in its own namespace) of the clients with a context on a GPU, at most `count` of them into
 * `processes`, and the bytes that each has there into `memory` (may be NULL). Returns how many there are, -1: no such
 * GPU. */
int orion_sim_gpu_processes(int gpu, uint32_t *processes, uint64_t *memory, int count);

#ifdef __cplusplus
}
#endif

#endif
