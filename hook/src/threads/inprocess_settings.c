/* Settings of a running scheduler, and the figures of its clients. */
#include <string.h>

#include "be/state.h"
#include "hp/busy.h"
#include "process/policy.h"
#include "process/process.h"
#include "threads/inprocess.h"
#include "threads/virtual_gpu.h"

#define EXPORTED __attribute__((visibility("default")))

/* A bound thread may have the stream of the role that the client had. It looks for one again at a change, as it does when a context ends. */
static void change_role(struct orion_process *process, int client, uint32_t role)
{
    struct orion_inprocess *scheduler = orion_inprocess(process);
    if (scheduler->roles[client] != role) atomic_fetch_add(&process->role_changes, 1);
    scheduler->roles[client] = role;
    orion_virtual_gpus_join(process, scheduler->roles, atomic_load(&scheduler->clients));
}

EXPORTED int orion_set_client_role(int client, int role)
{
    struct orion_process *process = orion_inprocess_locked();
    int result = 0;
    bool known = role == ORION_CLIENT_HP || role == ORION_CLIENT_BE;
    if (process == NULL) return orion_inprocess_fail("no scheduler runs; orion_start_scheduler() starts it");
    if (!orion_inprocess_has(process, client)) result = orion_inprocess_fail("there is no client %d", client);
    else if (!known) result = orion_inprocess_fail("a role is hp (1) or be (2), not %d", role);
    else if (orion_work_begun(process, orion_inprocess(process)->gpus[client]) > 0)
        result = orion_inprocess_fail("client %d has begun to work, so its role cannot change", client);
    else change_role(process, client, (uint32_t)role);
    orion_inprocess_unlock(process);
    return result;
}

EXPORTED int orion_set_policy(int policy, uint32_t max_slowdown_milli)
{
    if (!orion_policy_is_known((uint32_t)policy)) return orion_inprocess_fail("there is no policy %d", policy);
    if (max_slowdown_milli < ORION_MAX_SLOWDOWN_MILLI_LEAST || max_slowdown_milli > ORION_MAX_SLOWDOWN_MILLI_MOST)
        return orion_inprocess_fail("max_slowdown_milli must be %u to %u, not %u", ORION_MAX_SLOWDOWN_MILLI_LEAST,
                                    ORION_MAX_SLOWDOWN_MILLI_MOST, max_slowdown_milli);
    struct orion_process *process = orion_inprocess_locked();
    if (process == NULL) return orion_inprocess_fail("no scheduler runs; orion_start_scheduler() starts it");
    orion_virtual_gpus_set_policy(process, (uint32_t)policy, max_slowdown_milli);
    orion_inprocess_unlock(process);
    return 0;
}

EXPORTED int orion_client_figures(int client, struct orion_client_figures *figures, size_t size)
{
    struct orion_process *process = orion_inprocess_with(client);
    if (process == NULL) return -1;
    struct orion_gpu *gpu = orion_inprocess(process)->gpus[client];
    struct orion_record_page *record = gpu->record;
    const struct orion_client_figures now = {
        .role = atomic_load(&gpu->role),
        .launches = orion_work_begun(process, gpu),
        .gated_launches = atomic_load(&record->gated_launches),
        .gated_ns = atomic_load(&record->gated_ns),
        .window_waits = atomic_load(&record->window_waits),
        .window_wait_ns = atomic_load(&record->window_wait_ns),
        .overlapped_launches = atomic_load(&record->overlapped_launches),
        .overlapped_ns = atomic_load(&record->overlapped_ns),
        .busy_ns = atomic_load(&record->busy_ns),
        .busy_periods = atomic_load(&record->busy_periods),
        .gpu_ns = atomic_load(&record->gpu_ns),
        .in_flight_ns = atomic_load(&orion_be(gpu)->in_flight_ns),
    };
    memcpy(figures, &now, size < sizeof now ? size : sizeof now);
    return 0;
}
