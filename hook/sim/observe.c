/* What can be asked of the machine without CUDA (see orion_sim.h). */
#include <stdio.h>

#include "device_identity.h"
#pragma GCC visibility push(default)
#include "orion_sim.h"
#pragma GCC visibility pop
#include "sim.h"

static bool there(int gpu) { return sim_open() && sim_device_valid(gpu); }

int orion_sim_gpu_count(void) { return sim_open() ? (int)sim_machine->parameters.gpus : -1; }

int orion_sim_gpu_uuid(int gpu, char *buffer) {
    unsigned char u[16];
    if (!buffer || !there(gpu))
        return -1;
    sim_gpu_uuid(gpu, u);
    sprintf(buffer, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
            u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    return 0;
}

const char *orion_sim_gpu_name(int gpu) { return there(gpu) ? SIM_GPU_NAME : NULL; }

int orion_sim_gpu_memory(int gpu, uint64_t *total, uint64_t *used) {
    if (!there(gpu))
        return -1;
    sim_enter();
    uint64_t now = sim_state()->gpus[gpu].memory;
    sim_leave();
    if (total)
        *total = sim_machine->parameters.memory;
    if (used)
        *used = now;
    return 0;
}

int orion_sim_gpu_processes(int gpu, uint32_t *processes, uint64_t *memory, int count) {
    int found = 0;
    if (!there(gpu))
        return -1;
    sim_enter();
    const struct sim_state *state = sim_state();
    for (uint64_t client = 0; client < state->clients_high; client++) {
        uint64_t bytes = 0, contexts = 0;
        for (uint64_t i = 0; i < state->contexts_high; i++) {
            const struct sim_context *of = &state->contexts[i];
            if (of->used && of->client == client && of->gpu == (uint64_t)gpu) {
                contexts++;
                bytes += of->memory;
            }
        }
        if (!contexts || !state->clients[client].used)
            continue;
        if (found < count && processes)
            processes[found] = (uint32_t)state->clients[client].process;
        if (found < count && memory)
            memory[found] = bytes;
        found++;
    }
    sim_leave();
    return found;
}
