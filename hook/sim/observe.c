/* Reads the simulated machine's GPUs, memory and processes without the CUDA API (interface: orion_sim.h). */
#include "device_identity.h"
#include "file.h"
#pragma GCC visibility push(default)
#include "orion_sim.h"
#pragma GCC visibility pop
#include "graph.h"

static bool exists(int gpu) { return sim_open() && gpu >= 0 && (uint64_t)gpu < sim_machine->parameters.gpus; }

int orion_sim_gpu_count(void) { return sim_open() ? (int)sim_machine->parameters.gpus : -1; }

int orion_sim_gpu_uuid(int gpu, char *buffer)
{
    if (!buffer || !exists(gpu)) return -1;
    sim_gpu_uuid_text(gpu, buffer);
    return 0;
}

const char *orion_sim_gpu_name(int gpu) { return exists(gpu) ? SIM_GPU_NAME : NULL; }

int orion_sim_gpu_mig(int gpu) { return exists(gpu) ? (int)(sim_machine->parameters.mig >> gpu & 1) : -1; }

int orion_sim_gpu_numa(int gpu) { return exists(gpu) ? (int)sim_machine->parameters.numa[gpu] : -1; }

int orion_sim_gpu_linked(int gpu, int other)
{
    return exists(gpu) && exists(other) ? (int)(sim_machine->parameters.linked[gpu] >> other & 1) : -1;
}

int orion_sim_gpu_memory(int gpu, uint64_t *total, uint64_t *used)
{
    if (!exists(gpu)) return -1;
    sim_enter();
    uint64_t now = sim_state()->gpus[gpu].memory;
    sim_leave();
    if (total) *total = sim_machine->parameters.memory;
    if (used) *used = now;
    return 0;
}

static bool is_listed(const struct sim_client *client, uint64_t now_ns) { return !client->away_ns || now_ns < client->away_ns; }

/* Finds the clients with a context on the GPU: their indices, and the bytes that each has on it. Returns the count. */
static int clients_on(int gpu, uint64_t indices[SIM_CLIENTS], uint64_t bytes[SIM_CLIENTS])
{
    uint64_t contexts[SIM_CLIENTS] = {0}, memory[SIM_CLIENTS] = {0};
    int found = 0;
    sim_enter();
    const struct sim_state *state = sim_state();
    for (uint64_t i = 0; i < state->contexts_high; i++) {
        const struct sim_context *of = &state->contexts[i];
        if (of->used && of->gpu == (uint64_t)gpu && of->client < SIM_CLIENTS) {
            contexts[of->client]++;
            memory[of->client] += of->memory + of->away;
        }
    }
    for (uint64_t client = 0; client < state->clients_high; client++)
        if (contexts[client] && state->clients[client].used && is_listed(&state->clients[client], state->now_ns)) {
            indices[found] = client;
            bytes[found++] = memory[client];
        }
    sim_leave();
    return found;
}

int orion_sim_gpu_processes(int gpu, uint32_t *processes, uint64_t *memory, int count)
{
    uint64_t indices[SIM_CLIENTS], bytes[SIM_CLIENTS];
    if (!exists(gpu)) return -1;
    int found = clients_on(gpu, indices, bytes);
    for (int i = 0; i < found && i < count; i++) {
        if (processes) processes[i] = sim_file_claimant(indices[i]);
        if (memory) memory[i] = bytes[i];
    }
    return found;
}

int64_t orion_sim_graph_launches(const void *exec)
{
    return sim_handle_is(exec, SIM_EXEC) ? (int64_t)((const struct CUgraphExec_st *)exec)->launches : -1;
}
