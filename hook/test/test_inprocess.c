/* Client threads bind, launch and synchronise at random, in parallel. Then the scheduler stops and another one starts.
 * The test checks that hp's busy word is never clear while hp has work, and that each launch counts for its own client.
 * The test also runs under the thread sanitizer. It uses a fake driver; the scenarios in client_threads/ use the
 * simulated GPU. */
#include "check.h"
#include "fake_driver.h"

#include <pthread.h>

#include "be/partition.h"
#include "core/core.h"
#include "core/lifetimes.h"
#include "hp/busy.h"
#include "streams/stream_records.h"
#include "system/system.h"
#include "threads/inprocess.h"
#include "threads/redirect.h"

#define CLIENTS 3
#define THREADS 6
#define ROUNDS 3000

static _Atomic uint64_t created;
static _Atomic uint64_t launched[CLIENTS];

static CUresult CUDAAPI create_stream(CUstream *stream, unsigned flags, int priority)
{
    CHECK(flags == CU_STREAM_NON_BLOCKING && (priority == 0 || priority == -5));
    *stream = (CUstream)(uintptr_t)(0x9000 + 0x100 * atomic_fetch_add(&created, 1));
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI priorities(int *least, int *greatest)
{
    *least = 0, *greatest = -5;
    return CUDA_SUCCESS;
}
static _Thread_local void (*during_synchronise)(void);
static CUstream destroyed; /* meanwhile */
static CUresult CUDAAPI done_stream(CUstream stream)
{
    void (*call)(void) = during_synchronise;
    during_synchronise = NULL;
    if (call != NULL) call();
    return call != NULL && stream == destroyed ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
static CUstream ended; /* a stream that ended with its context; no call may use it */
static CUresult CUDAAPI record(CUevent event, CUstream stream)
{
    (void)event;
    CHECK(ended == NULL || stream != ended);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)event, (void)stream, (void)flags;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI elapsed(float *milliseconds, CUevent from, CUevent to)
{
    (void)from, (void)to;
    *milliseconds = 0;
    return CUDA_SUCCESS;
}

static void fake_threads_driver(void)
{
    orion_driver.cuCtxGetCurrent = fake_get_current;
    orion_driver.cuStreamGetCtx = fake_stream_context;
    orion_driver.cuCtxGetDevice = fake_get_device;
    orion_driver.cuCtxPushCurrent_v2 = fake_push;
    orion_driver.cuCtxPopCurrent_v2 = fake_get_current;
    orion_driver.cuEventCreate = fake_event_create;
    orion_driver.cuEventDestroy_v2 = fake_event_destroy;
    orion_driver.cuEventQuery = fake_event_query;
    orion_driver.cuEventSynchronize = fake_event_query;
    orion_driver.cuEventRecord = record;
    orion_driver.cuEventElapsedTime_v2 = elapsed;
    orion_driver.cuThreadExchangeStreamCaptureMode = fake_exchange;
    orion_driver.cuStreamSynchronize = done_stream;
    orion_driver.cuStreamQuery = done_stream;
    orion_driver.cuStreamWaitEvent = wait;
    orion_driver.cuStreamCreateWithPriority = create_stream;
    orion_driver.cuCtxGetStreamPriorityRange = priorities;
}

static void launch(uint32_t client, CUstream stream)
{
    struct orion_work work = {.stream = {orion_redirected(stream), false}, .identity = 9};
    orion_work_begin(&work);
    CHECK(work.stream_record != NULL);
    const struct orion_gpu *gpu = work.stream_record->gpu;
    CHECK(gpu->client == client + 1);
    uint32_t state = atomic_load(&gpu->busy->state); /* CLOSING: another thread tries to clear the word now */
    if (gpu->role == ORION_ROLE_HP) CHECK(state == ORION_BUSY || state == ORION_CLOSING);
    atomic_fetch_add(&launched[client], 1);
    orion_work_end(&work, CUDA_SUCCESS);
}

static void synchronise(CUstream stream)
{
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {orion_redirected(stream), false}};
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static void *work(void *argument)
{
    uint32_t number = (uint32_t)(uintptr_t)argument, client = number % CLIENTS;
    unsigned seed = number + 1;
    CUstream own = (CUstream)(uintptr_t)(0x500000 + 0x1000 * number);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (i % 100 == 0) CHECK(orion_set_client_idx((int)client) == 0);
        CUstream stream = rand_r(&seed) % 2 ? own : NULL;
        CUresult result;
        launch(client, stream);
        switch (rand_r(&seed) % 4) {
        case 0: synchronise(NULL); break;
        case 1: synchronise(own); break;
        case 2: CHECK(orion_synchronised_client(NULL, &result) && result == CUDA_SUCCESS); break;
        default: break;
        }
    }
    CHECK(orion_set_client_idx(-1) == 0);
    CHECK(orion_redirected(NULL) == NULL);
    return NULL;
}

static void run_scheduler(void)
{
    pthread_t threads[THREADS];
    CHECK(orion_start_scheduler(CLIENTS) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    struct orion_client_figures figures;
    for (int i = 0; i < CLIENTS; i++) CHECK(orion_client_figures(i, &figures, sizeof figures) == 0 && figures.launches > 0);
    CHECK(orion_stop_scheduler() == 0);
    CHECK(atomic_load(&orion_the_process->managed) == 0);
}

/* A context ends while a thread is bound to a client. The client's stream is then invalid: a driver call with the
 * stream may crash the process, so the hook must make none. */
static void end_a_context_while_a_thread_is_bound(void)
{
    CHECK(orion_start_scheduler(CLIENTS) == 0);
    CHECK(orion_set_client_idx(0) == 0);
    ended = orion_redirected(NULL);
    CHECK(ended != NULL);
    orion_context_ending(FAKE_CONTEXT);
    orion_context_destroyed(FAKE_CONTEXT, CUDA_SUCCESS);
    CHECK(orion_set_client_idx(-1) == 0);
    CHECK(orion_stop_scheduler() == 0);
    ended = NULL;
}

/* A launch that waited for hp goes once the stop has released it. It is no work of the next scheduler, whose roles may still change. */
static void launch_late(void) { launch(0, NULL); }
static void launch_while_the_scheduler_stops(void)
{
    CHECK(orion_start_scheduler(CLIENTS) == 0 && orion_set_client_idx(0) == 0);
    launch(0, NULL);
    during_synchronise = launch_late;
    CHECK(orion_stop_scheduler() == 0 && during_synchronise == NULL);
    CHECK(orion_start_scheduler(CLIENTS) == 0);
    uint32_t epoch = atomic_load(&orion_the_process->context_epoch);
    CHECK(orion_set_client_role(0, ORION_CLIENT_HP) == 0);
    CHECK(atomic_load(&orion_the_process->context_epoch) == epoch); /* else hp's events and pinned pages seem to have ended */
    CHECK(orion_stop_scheduler() == 0);
}

/* Another thread of the client destroys a stream, as it may while a thread waits for the context. */
static void destroy_a_stream(void)
{
    destroyed = (CUstream)(uintptr_t)0x600000;
    CHECK(!orion_stream_ending(destroyed));
}
static void wait_for_another(void) { during_synchronise = destroy_a_stream; } /* the first wait is for the own stream */
static void destroy_a_stream_while_a_thread_waits(void)
{
    CUresult result;
    CHECK(orion_start_scheduler(CLIENTS) == 0 && orion_set_client_idx(CLIENTS - 1) == 0);
    launch(CLIENTS - 1, (CUstream)(uintptr_t)0x600000);
    launch(CLIENTS - 1, NULL);
    during_synchronise = wait_for_another;
    CHECK(orion_synchronised_client(NULL, &result) && result == CUDA_SUCCESS);
    CHECK(during_synchronise == NULL && destroyed != NULL);
    CHECK(orion_stop_scheduler() == 0);
}

/* Then the work is complete, and another client's stream gets the record. */
static void *launch_of_another(void *unused)
{
    CHECK(orion_set_client_idx(0) == 0);
    launch(0, (CUstream)(uintptr_t)0x602000);
    return unused;
}
static void destroy_a_stream_whose_record_another_client_gets(void)
{
    pthread_t another;
    struct orion_stream_record *stream_record =
        orion_stream_record_of(orion_the_process, (struct orion_stream_name){destroyed, false});
    CHECK(!orion_stream_ending(destroyed));
    orion_stream_record_prove(stream_record, atomic_load(&stream_record->begun));
    CHECK(pthread_create(&another, NULL, launch_of_another, NULL) == 0 && pthread_join(another, NULL) == 0);
    CHECK(atomic_load(&stream_record->gpu)->client == 1);
}
static void wait_for_that_one(void) { during_synchronise = destroy_a_stream_whose_record_another_client_gets; }
static void another_client_gets_the_record_while_a_thread_waits(void)
{
    CUresult result;
    CHECK(orion_start_scheduler(CLIENTS) == 0 && orion_set_client_idx(CLIENTS - 1) == 0);
    destroyed = (CUstream)(uintptr_t)0x601000;
    launch(CLIENTS - 1, NULL);
    launch(CLIENTS - 1, destroyed);
    during_synchronise = wait_for_that_one;
    CHECK(orion_synchronised_client(NULL, &result) && during_synchronise == NULL);
    CHECK(result == CUDA_SUCCESS);
    CHECK(orion_stop_scheduler() == 0);
}

/* The budget counts launches, also once a record of one client's stream has become that of another one's. */
static void count_launches_of_each_client(void)
{
    CUstream stream = (CUstream)(uintptr_t)0x610000;
    CHECK(orion_start_scheduler(2) == 0 && orion_set_client_idx(0) == 0);
    for (int i = 0; i < 5; i++) launch(0, stream);
    synchronise(stream);
    orion_stream_ending(stream);
    CHECK(orion_set_client_idx(1) == 0);
    for (int i = 0; i < 2; i++) launch(1, stream);
    CHECK(atomic_load(&orion_stream_record_of(orion_the_process, (struct orion_stream_name){stream, false})->begun_before) >= 5);
    for (uint32_t i = 0; i < 2; i++)
        CHECK(orion_work_begun(orion_the_process, orion_inprocess(orion_the_process)->gpus[i]) == (i == 0 ? 5 : 2));
    CHECK(orion_stop_scheduler() == 0);
}

/* -- Partitions -------------------------------------------------------------------------------------------------------- */

static int partitions;
static CUresult CUDAAPI resource(CUdevice device, CUdevResource *all, CUdevResourceType type)
{
    (void)device, (void)type;
    all->sm.smCount = 132;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI split(CUdevResource *part, unsigned *groups, const CUdevResource *all, CUdevResource *rest, unsigned flags,
                              unsigned sms)
{
    (void)groups, (void)rest, (void)flags, (void)sms;
    *part = *all;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI describe(CUdevResourceDesc *description, CUdevResource *part, unsigned count)
{
    (void)description, (void)part, (void)count;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI create_green(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device, unsigned flags)
{
    (void)description, (void)device, (void)flags;
    *green = (CUgreenCtx)(uintptr_t)(0x700 + ++partitions);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI destroy_green(CUgreenCtx green)
{
    (void)green;
    partitions--;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI create_green_stream(CUstream *stream, CUgreenCtx green, unsigned flags, int priority)
{
    (void)green, (void)flags, (void)priority;
    *stream = (CUstream)(uintptr_t)0x8000;
    return CUDA_SUCCESS;
}

/* The next scheduler may be one of another GPU, where kernels of that GPU cannot run in these contexts. */
static void a_scheduler_leaves_no_partition(void)
{
    orion_driver.cuDeviceGetDevResource = resource;
    orion_driver.cuDevSmResourceSplitByCount = split;
    orion_driver.cuDevResourceGenerateDesc = describe;
    orion_driver.cuGreenCtxCreate = create_green;
    orion_driver.cuGreenCtxDestroy = destroy_green;
    orion_driver.cuGreenCtxStreamCreate = create_green_stream;
    orion_driver.cuStreamDestroy_v2 = done_stream;
    fake_primary();
    for (int round = 0; round < 2; round++) {
        CHECK(orion_start_scheduler(CLIENTS) == 0 && orion_set_client_idx(0) == 0);
        struct orion_stream_name own = {orion_redirected(NULL), false};
        CHECK(orion_partition_can_move(orion_the_process, orion_stream_record_of(orion_the_process, own)));
        CHECK(partitions == 1);
        CHECK(orion_stop_scheduler() == 0);
        CHECK(partitions == 0);
    }
}

int main(void)
{
    fake_threads_driver();
    run_scheduler();
    uint64_t first = atomic_load(&created);
    CHECK(first == CLIENTS);
    run_scheduler();
    CHECK(atomic_load(&created) == first); /* the streams are reused */
    for (unsigned i = 0; i < CLIENTS; i++) CHECK(atomic_load(&launched[i]) == UINT64_C(2) * ROUNDS * THREADS / CLIENTS);
    end_a_context_while_a_thread_is_bound();
    launch_while_the_scheduler_stops();
    destroy_a_stream_while_a_thread_waits();
    another_client_gets_the_record_while_a_thread_waits();
    count_launches_of_each_client();
    a_scheduler_leaves_no_partition();
    return 0;
}
