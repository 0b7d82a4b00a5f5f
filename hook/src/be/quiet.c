#include "be/quiet.h"

#include <stdatomic.h>
#include <stdint.h>

#include "be/admission.h"
#include "be/gate.h"
#include "be/state.h"
#include "be/stop.h"
#include "be/valve.h"
#include "be/window.h"
#include "learning/identity.h"
#include "learning/kernels.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/stream_name.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define TOKEN_NS 1u /* what the wait enters the window with: it needs an empty one */

bool orion_quiet_matters(const struct orion_process *process, const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&gpu->role, memory_order_relaxed) == ORION_ROLE_BE && gpu->client == 0 && orion_admits(gpu) &&
           !orion_policy_overlaps(gpu) && orion_stops_exist(gpu) && atomic_load(&process->captures) == 0;
}

bool orion_quiet_is_wanted(const struct orion_gpu *gpu) { return atomic_load(&orion_be(gpu)->quiet) > 0; }

void orion_quiet_wait(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_gpu *gpu = stream_record->gpu;
    uint64_t waited = 0;
    while (orion_valve_may_hold(gpu) && waited < orion_window_patience(gpu)) {
        if (!orion_quiet_matters(process, gpu)) return;
        if (orion_gate_closed(gpu)) {
            orion_gate_sleep(process, gpu, ORION_GATE_POLL_NS);
            continue;
        }
        uint64_t began = orion_now();
        if (orion_window_enter(process, stream_record, TOKEN_NS, 0)) orion_window_leave(gpu, TOKEN_NS);
        waited += orion_now() - began;
    }
}

/* -- Around a call --------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t *place_of(struct orion_process *process, uint64_t lookup)
{
    return &orion_lookups(process)->loaded[lookup & (ORION_LOOKUPS - 1)];
}

/* Never forgotten too late: a handle of a library is free for another one only after a library was unloaded. */
static uint64_t lookup_of(struct orion_process *process, const struct orion_gpu *gpu, enum orion_code_owner owner,
                          const void *handle, const char *name)
{
    struct orion_kernels *kernels = orion_kernels(process);
    uint64_t epoch = atomic_load(owner == ORION_CODE_OF_LIBRARY ? &kernels->libraries : &kernels->epoch);
    uint64_t of_name = name != NULL ? orion_hash_name(name) : 0;
    return orion_mix(orion_handle_word(handle, epoch) + of_name + owner) ^ orion_hash_handle(gpu);
}

static bool has_loaded(struct orion_process *process, uint64_t lookup)
{
    return atomic_load_explicit(place_of(process, lookup), memory_order_relaxed) == lookup;
}

static void note_loaded(struct orion_process *process, uint64_t lookup)
{
    atomic_store_explicit(place_of(process, lookup), lookup, memory_order_relaxed);
}

bool orion_quiet_has_loaded(struct orion_process *process, const struct orion_gpu *gpu, const void *kernel)
{
    return has_loaded(process, lookup_of(process, gpu, ORION_CODE_OF_LIBRARY, kernel, NULL));
}

void orion_quiet_loads(struct orion_process *process, const struct orion_gpu *gpu, const void *kernel)
{
    note_loaded(process, lookup_of(process, gpu, ORION_CODE_OF_LIBRARY, kernel, NULL));
}

void orion_quiet_begin(struct orion_quiet *quiet, enum orion_code_owner owner, const void *handle, const char *name)
{
    *quiet = (struct orion_quiet){NULL, 0};
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, (struct orion_stream_name){NULL, false});
    if (stream_record == NULL) return;
    uint64_t lookup = handle != NULL ? lookup_of(process, stream_record->gpu, owner, handle, name) : 0;
    if (lookup != 0 && has_loaded(process, lookup)) return;
    quiet->lookup = lookup;
    if (!orion_quiet_matters(process, stream_record->gpu)) return;
    quiet->gpu = stream_record->gpu;
    atomic_fetch_add(&orion_be(quiet->gpu)->quiet, 1);
    orion_quiet_wait(process, stream_record);
}

void orion_quiet_end(const struct orion_quiet *quiet, CUresult result)
{
    if (quiet->gpu != NULL) atomic_fetch_sub(&orion_be(quiet->gpu)->quiet, 1);
    if (quiet->lookup != 0 && result == CUDA_SUCCESS) note_loaded(orion_the_process, quiet->lookup);
}
