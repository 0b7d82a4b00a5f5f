/* Starts and stops the scheduler of client threads, and binds threads to clients. redirect.c creates the clients' own
 * streams. */
#include "threads/inprocess.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "be/ends.h"
#include "core/joining.h"
#include "core/lifetimes.h"
#include "generated/driver.h"
#include "process/process.h"
#include "streams/outcome.h"
#include "streams/stream_records.h"
#include "streams/own_streams.h"
#include "system/environment.h"
#include "system/lock.h"
#include "system/log.h"
#include "system/system.h"
#include "threads/redirect.h"
#include "threads/virtual_gpu.h"

#define EXPORTED __attribute__((visibility("default")))

_Thread_local struct orion_binding orion_binding;
static _Thread_local char last_error[192];

/* -- Errors, lock, lookup -------------------------------------------------------------------------------------------- */

int orion_inprocess_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    orion_log(ORION_LOG_ERROR, "%s", last_error);
    return -1;
}

void orion_inprocess_lock(struct orion_process *process) { orion_lock(&orion_inprocess(process)->lock); }
void orion_inprocess_unlock(struct orion_process *process) { orion_unlock(&orion_inprocess(process)->lock); }

struct orion_process *orion_inprocess_locked(void)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return NULL;
    orion_inprocess_lock(process);
    if (orion_process_has_scheduler(process)) return process;
    orion_inprocess_unlock(process);
    return NULL;
}

bool orion_inprocess_has(struct orion_process *process, int client)
{
    return client >= 0 && (uint32_t)client < atomic_load(&orion_inprocess(process)->clients);
}

struct orion_process *orion_inprocess_with(int client)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL || !orion_process_has_scheduler(process)) {
        orion_inprocess_fail("no scheduler runs; orion_start_scheduler() starts it");
        return NULL;
    }
    if (orion_inprocess_has(process, client)) return process;
    orion_inprocess_fail("there is no client %d; the scheduler has %u", client, atomic_load(&orion_inprocess(process)->clients));
    return NULL;
}

/* -- Which client work belongs to ------------------------------------------------------------------------------------ */

bool orion_inprocess_is_on_its_gpu(struct orion_process *process, CUdevice device)
{
    struct orion_inprocess *scheduler = orion_inprocess(process);
    int32_t ours = atomic_load(&scheduler->device);
    if (ours == 0) {
        orion_inprocess_lock(process);
        if ((ours = atomic_load(&scheduler->device)) == 0) {
            for (uint32_t i = 0; i < ORION_CLIENTS_MOST; i++)
                if (scheduler->gpus[i] != NULL) scheduler->gpus[i]->device = device;
            atomic_store(&scheduler->device, ours = device + 1);
        }
        orion_inprocess_unlock(process);
    }
    return ours == device + 1;
}

struct orion_gpu *orion_owner_by_client(struct orion_process *process, CUstream stream, CUdevice device)
{
    uint32_t client = orion_owner_of(process, stream);
    bool is_bound = orion_binding.generation == atomic_load(&process->scheduler);
    if (client == 0 && is_bound) client = orion_binding.client;
    if (client == 0) return NULL;
    if (orion_inprocess_is_on_its_gpu(process, device)) return orion_inprocess(process)->gpus[client - 1];
    orion_log(ORION_LOG_DEBUG, "client %u uses GPU %d, which this scheduler does not manage", client - 1, device);
    return NULL;
}

/* -- Start and stop -------------------------------------------------------------------------------------------------- */

/* Also before the process has joined its slots, as it does when it first uses its GPU: with a scheduler it would never join. */
static bool is_managed_by_an_agent(struct orion_process *process)
{
    if (orion_agent_gave_slots()) return true;
    ORION_EACH_GPU(gpu, process)
        if (gpu->client == 0 && atomic_load(&gpu->role) != ORION_ROLE_NONE) return true;
    return false;
}

/* The number of the hp client: ORION_HP_CLIENT, or the last client if the variable is not set. -1: its value is
 * invalid. */
static int choose_hp(int clients)
{
    const char *text = orion_environment()->hp_client;
    if (text[0] == '\0') return clients - 1;
    char *end;
    long chosen = strtol(text, &end, 10);
    return *end == '\0' && chosen >= 0 && chosen < clients ? (int)chosen : -1;
}

/* The new scheduler counts from here. Launches that waited when the last one stopped have gone since, and hp's thread may still write. */
static void clear_figures(struct orion_process *process, const struct orion_gpu *gpu)
{
    for (_Atomic uint64_t *word = &gpu->record->launches; word < &gpu->record->shares_context; word++) atomic_store(word, 0);
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu)
        atomic_store(&stream_record->begun_before, atomic_load(&stream_record->begun));
}

static int start(struct orion_process *process, int clients, int hp)
{
    struct orion_inprocess *scheduler = orion_inprocess(process);
    if (orion_process_has_scheduler(process))
        return orion_inprocess_fail("a scheduler runs already; orion_stop_scheduler() ends it");
    if (is_managed_by_an_agent(process))
        return orion_inprocess_fail("this process is a node agent's client; to schedule its threads, start it without ORION_ROOT, "
                                    "outside of `orion run` and of Orion's pods");
    if (orion_virtual_gpus_make(process, (uint32_t)clients) != 0)
        return orion_inprocess_fail("no memory for %d clients, or too many GPUs in use", clients);
    for (int i = 0; i < clients; i++) {
        scheduler->roles[i] = i == hp ? ORION_ROLE_HP : ORION_ROLE_BE;
        clear_figures(process, scheduler->gpus[i]);
    }
    orion_virtual_gpus_set_policy(process, ORION_POLICY_ORION, 1000);
    atomic_store(&scheduler->clients, (uint32_t)clients);
    orion_virtual_gpus_join(process, scheduler->roles, (uint32_t)clients);
    /* A forked child's thread still has its binding to the parent's scheduler. The process id in the generation makes
     * that binding invalid. */
    uint32_t generation = (uint32_t)getpid() << 8 | (++scheduler->starts & 0xff);
    atomic_fetch_add(&process->stream_record_epoch, 1);
    atomic_store(&process->owner, orion_owner_by_client);
    atomic_store(&process->thread_ended, orion_thread_stream_ended);
    atomic_store_explicit(&process->scheduler, generation != 0 ? generation : 1, memory_order_release);
    orion_log(ORION_LOG_INFO, "scheduler of %d clients started; client %d is hp", clients, hp);
    return 0;
}

int orion_inprocess_start(int clients)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return orion_inprocess_fail("no memory for the scheduler");
    if (clients < 1 || clients > ORION_CLIENTS_MOST)
        return orion_inprocess_fail("a scheduler has 1 to %d clients, not %d", ORION_CLIENTS_MOST, clients);
    int hp = choose_hp(clients);
    if (hp < 0) return orion_inprocess_fail("ORION_HP_CLIENT must be the number of a client, 0 to %d", clients - 1);
    orion_inprocess_lock(process);
    int result = start(process, clients, hp);
    orion_inprocess_unlock(process);
    return result;
}

/* Marks the stream record's work as completed, and ends the record unless it is an overflow record. The caller has
 * waited for the work. */
static void end_stream_record(struct orion_stream_record *stream_record, bool is_shared)
{
    uint32_t ready = ORION_STREAM_RECORD_READY;
    orion_ends_forget(stream_record, true);
    orion_stream_record_prove(stream_record, atomic_load(&stream_record->returned));
    if (!is_shared) atomic_compare_exchange_strong(&stream_record->state, &ready, ORION_STREAM_RECORD_ENDED);
}

static CUresult wait_for(const struct orion_process *process, const struct orion_stream_record *stream_record)
{
    CUcontext popped;
    CUresult result = orion_driver.cuCtxPushCurrent_v2(stream_record->context);
    if (result != CUDA_SUCCESS) return result;
    result = orion_stream_record_has_handle(process, stream_record)
                 ? orion_driver.cuStreamSynchronize(orion_stream_record_handle(stream_record))
                 : orion_driver.cuCtxSynchronize();
    orion_driver.cuCtxPopCurrent_v2(&popped);
    return result;
}

/* Waits for the work of all clients, in the context of each stream. */
static void drain(struct orion_process *process)
{
    ORION_EACH_STREAM_RECORD(stream_record, process, NULL) {
        if (atomic_load(&stream_record->gpu)->client == 0) continue;
        uint32_t state = atomic_load(&stream_record->state);
        if (state == ORION_STREAM_RECORD_ENDING) orion_ends_forget(stream_record, true);
        if (state != ORION_STREAM_RECORD_READY) continue;
        if (orion_outcome_of(wait_for(process, stream_record)) == ORION_OUTCOME_UNKNOWN) continue;
        end_stream_record(stream_record, orion_stream_record_is_shared(process, stream_record));
    }
}

EXPORTED int orion_stop_scheduler(void)
{
    struct orion_process *process = orion_inprocess_locked();
    if (process == NULL) return 0;
    orion_virtual_gpus_set_policy(process, ORION_POLICY_NONE, 1000); /* releases the launches that wait */
    drain(process);
    atomic_store(&process->scheduler, 0);
    atomic_store(&process->owner, orion_owner_by_device);
    atomic_store(&orion_inprocess(process)->clients, 0);
    atomic_store(&orion_inprocess(process)->device, 0);
    orion_virtual_gpus_leave(process);
    atomic_fetch_add(&process->stream_record_epoch, 1);
    orion_inprocess_unlock(process);
    orion_binding = (struct orion_binding){0};
    orion_log(ORION_LOG_INFO, "scheduler stopped");
    return 0;
}

/* -- Binding --------------------------------------------------------------------------------------------------------- */

static void unbind(struct orion_process *process)
{
    if (orion_binding.generation == atomic_load(&process->scheduler))
        orion_legacy_follows_client(process, orion_binding.client - 1);
    orion_binding = (struct orion_binding){0};
    atomic_fetch_add(&process->stream_record_epoch, 1); /* cached stream records depend on the binding */
}

EXPORTED int orion_set_client_idx(int client)
{
    struct orion_process *process = client == -1 ? orion_process_started() : orion_inprocess_with(client);
    if (process == NULL) return client == -1 ? orion_inprocess_fail("no memory for the scheduler") : -1;
    if (orion_binding.client != 0) unbind(process);
    if (client == -1) return 0;
    uint32_t generation = atomic_load(&process->scheduler);
    orion_binding = (struct orion_binding){.client = (uint32_t)client + 1, .generation = generation};
    atomic_fetch_add(&process->stream_record_epoch, 1);
    orion_log(ORION_LOG_INFO, "a thread is bound to client %d", client);
    /* Creates the client's own stream now, ordered after the work that is in the legacy stream at this moment. A thread
     * without a context gets the stream when it first uses one. */
    if (orion_driver.cuCtxGetCurrent != NULL) orion_own_stream(NULL);
    return 0;
}

EXPORTED void *orion_client_stream(int client)
{
    struct orion_process *process = orion_inprocess_with(client);
    if (process == NULL) return NULL;
    CUstream stream = NULL;
    if (orion_driver.cuCtxGetCurrent != NULL) stream = orion_stream_of_client(process, (uint32_t)client);
    if (stream == NULL)
        orion_inprocess_fail("the calling thread has no CUDA context on the scheduler's GPU; use the GPU in it first");
    return stream;
}

EXPORTED const char *orion_scheduler_error(void) { return last_error; }
