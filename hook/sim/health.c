/* Faults of GPUs. A test or a demonstration injects them. There are two kinds: Xid events, which programs do not notice
 * here, and the loss of a GPU. After a loss, every operation on the GPU fails: its contexts keep an error for ever, and
 * new contexts are refused. */
#include "health.h"
#include "mps.h"
#include "sim.h"
#pragma GCC visibility push(default)
#include "orion_sim.h"
#pragma GCC visibility pop

static struct sim_health *health_of(int gpu)
{
    bool exists = sim_open() && gpu >= 0 && (uint64_t)gpu < sim_machine->parameters.gpus;
    return exists ? &sim_machine->health[gpu] : NULL;
}

bool sim_device_lost(CUdevice device)
{
    return atomic_load_explicit(&sim_machine->health[sim_device_gpu(device)].lost, memory_order_relaxed);
}

CUresult sim_context_error(struct CUctx_st *context)
{
    if (sim_device_lost(context->device)) context->sticky = CUDA_ERROR_UNKNOWN;
    else if (sim_mps_lost()) context->sticky = CUDA_ERROR_MPS_RPC_FAILURE;
    return context->sticky;
}

int orion_sim_gpu_health(int gpu, uint64_t *events, uint32_t *xid)
{
    struct sim_health *health = health_of(gpu);
    if (!health) return -1;
    uint64_t seen = atomic_load(&health->xid);
    if (events) *events = seen >> 32;
    if (xid) *xid = (uint32_t)seen;
    return atomic_load(&health->lost) ? 1 : 0;
}

int orion_sim_gpu_raise_xid(int gpu, uint32_t xid)
{
    struct sim_health *health = health_of(gpu);
    if (!health) return -1;
    uint64_t before = atomic_load(&health->xid);
    while (!atomic_compare_exchange_weak(&health->xid, &before, ((before >> 32) + 1) << 32 | xid)) {}
    return 0;
}

int orion_sim_gpu_set_lost(int gpu, int lost)
{
    struct sim_health *health = health_of(gpu);
    if (!health) return -1;
    atomic_store(&health->lost, lost != 0);
    return 0;
}
