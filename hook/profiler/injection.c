/* The profiler: a library that records which kernels ran, and for how long. The CUDA driver itself loads it
 * (CUDA_INJECTION64_PATH) into the profiled program and the program's children.
 *
 * The profiler is separate from the hook, because it profiles the unchanged program, and most programs are never
 * profiled. Tracing (CUPTI's activity records) needs no privileges. Hardware counters need privileges, so the profiler
 * does not use them. If the profiler fails, the program continues, and the profiler prints the reason once.
 *
 *   ORION_PROFILE_DIRECTORY   folder for the output (see output.h); if unset, the profiler does nothing
 *   ORION_PROFILE_LAUNCHES    number of launches to record individually (default 0)
 *   ORION_PROFILE_CUPTI       CUPTI libraries to try, separated by colons */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cupti.h"
#include "devices.h"
#include "kernels.h"
#include "output.h"

#define BUFFER_BYTES ((size_t)256 << 10) /* holds a thousand records of the longest known kind */
#define PERIOD_MS 400                    /* a killed program loses the records of the last period, and of unfinished buffers */
#define END_SECONDS 3                    /* how long a flush that does not return may delay the program's end */
enum { RECORDS_LEAST = 32, RECORDS_MOST = 1000 };

static struct {
    struct cupti cupti;
    pthread_mutex_t mutex; /* guards everything below; never held during a call of CUPTI or the driver */
    struct profiler_kernels kernels;
    struct profiler_output output;
    struct profiler_state state;
    uint64_t written; /* records contained in the file on disk */
    char failure[512];
    pid_t owner; /* a forked child inherits this structure and must not use it */
    pthread_t thread;
    pthread_mutex_t end_mutex;
    pthread_cond_t end;
    bool ending;
} profiler = {.mutex = PTHREAD_MUTEX_INITIALIZER, .end_mutex = PTHREAD_MUTEX_INITIALIZER};

/* CUPTI delivers a buffer when all its records are finished. While the program launches without a pause, CUPTI
 * therefore delivers only full buffers. A buffer is sized for the records of about an eighth of a second. */
static _Atomic size_t records_a_buffer = 256;

static void requested(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *buffer = malloc(BUFFER_BYTES); /* NULL: CUPTI drops records and counts them */
    *size = BUFFER_BYTES;
    *most_records = atomic_load_explicit(&records_a_buffer, memory_order_relaxed);
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    struct cupti_record *at = NULL;
    const struct cupti_kernel *kernel;
    size_t dropped = 0;
    (void)size;
    profiler.cupti.dropped_records(context, stream, &dropped);
    pthread_mutex_lock(&profiler.mutex);
    while ((kernel = cupti_next_kernel(&profiler.cupti, buffer, valid, &at)) != NULL)
        profiler_output_launch(&profiler.output, kernel, profiler_kernels_add(&profiler.kernels, kernel));
    profiler.state.dropped += dropped;
    pthread_mutex_unlock(&profiler.mutex);
    free(buffer);
}

/* This function queries devices without the mutex, because CUPTI's thread may wait for the mutex while it holds the
 * driver's locks. */
static void write_files(void)
{
    bool seen[PROFILER_DEVICES] = {false};
    pthread_mutex_lock(&profiler.mutex);
    for (uint32_t i = 0; i < profiler.kernels.count; i++)
        if (profiler.kernels.kernels[i].device < PROFILER_DEVICES) seen[profiler.kernels.kernels[i].device] = true;
    pthread_mutex_unlock(&profiler.mutex);
    for (uint32_t i = 0; i < PROFILER_DEVICES; i++)
        if (seen[i]) profiler_device_ask(i);
    pthread_mutex_lock(&profiler.mutex);
    profiler_output_write(&profiler.output, &profiler.kernels, &profiler.state);
    profiler.written = profiler.kernels.records;
    pthread_mutex_unlock(&profiler.mutex);
}

static void flush_and_write(void)
{
    static uint64_t before;
    profiler.cupti.flush_all(0);
    pthread_mutex_lock(&profiler.mutex);
    uint64_t records = profiler.kernels.records, written = profiler.written;
    pthread_mutex_unlock(&profiler.mutex);
    size_t wanted = (size_t)(records - before) / 3;
    wanted = wanted < RECORDS_LEAST ? RECORDS_LEAST : wanted > RECORDS_MOST ? RECORDS_MOST : wanted;
    atomic_store_explicit(&records_a_buffer, wanted, memory_order_relaxed);
    before = records;
    if (records != written) write_files();
}

static void *watch(void *unused)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&profiler.end_mutex);
    while (!profiler.ending) {
        until.tv_nsec += PERIOD_MS * 1000000L;
        if (until.tv_nsec >= 1000000000L) until.tv_nsec -= 1000000000L, until.tv_sec++;
        while (!profiler.ending && pthread_cond_timedwait(&profiler.end, &profiler.end_mutex, &until) != ETIMEDOUT) {}
        if (profiler.ending) break;
        pthread_mutex_unlock(&profiler.end_mutex);
        flush_and_write();
        clock_gettime(CLOCK_MONOTONIC, &until);
        pthread_mutex_lock(&profiler.end_mutex);
    }
    pthread_mutex_unlock(&profiler.end_mutex);
    return unused;
}

/* Work that the program did not wait for may have no times yet. Its launches still count. */
static void finish(void)
{
    struct timespec deadline;
    if (getpid() != profiler.owner) return;
    pthread_mutex_lock(&profiler.end_mutex);
    profiler.ending = true;
    pthread_cond_signal(&profiler.end);
    pthread_mutex_unlock(&profiler.end_mutex);
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += END_SECONDS;
    if (pthread_timedjoin_np(profiler.thread, NULL, &deadline) != 0)
        return; /* the flush hangs; the file that was written last remains */
    profiler.cupti.flush_all(0);
    profiler.cupti.flush_all(CUPTI_FLUSH_FORCED);
    profiler.state.ended = true;
    write_files();
}

static bool start_thread(void)
{
    sigset_t all, before;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&profiler.end, &clock);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's own threads handle its signals */
    int result = pthread_create(&profiler.thread, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result == 0;
}

static bool trace(void)
{
    const char *candidates = getenv("ORION_PROFILE_CUPTI");
    uint32_t result;
    if (!cupti_open(&profiler.cupti, candidates, profiler.failure, sizeof profiler.failure)) return false;
    if ((result = profiler.cupti.register_callbacks(requested, completed)) == CUPTI_OK)
        result = profiler.cupti.enable(CUPTI_KIND_CONCURRENT_KERNEL);
    if (result == CUPTI_OK) return true;
    const char *text = "an unknown error";
    profiler.cupti.result_text(result, &text);
    snprintf(profiler.failure, sizeof profiler.failure, "CUPTI refuses to trace kernels: %s (%u)", text, result);
    return false;
}

/* The driver calls this in the first cuInit. Always returns 1, because the profiler must not make the program's cuInit
 * fail. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    const char *folder = getenv("ORION_PROFILE_DIRECTORY"), *launches = getenv("ORION_PROFILE_LAUNCHES");
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (folder == NULL || atomic_flag_test_and_set(&done)) return 1;
    profiler.owner = getpid();
    profiler_output_open(&profiler.output, folder, launches != NULL ? strtoull(launches, NULL, 10) : 0);
    if (!profiler_kernels_open(&profiler.kernels)) return 1;
    /* Register our exit handler after CUPTI has registered its own: at exit, ours then runs first. */
    if (trace() && start_thread() && atexit(finish) == 0) return 1;
    if (profiler.failure[0] == '\0') snprintf(profiler.failure, sizeof profiler.failure, "no thread can be started");
    profiler.state.failure = profiler.failure;
    fprintf(stderr, "orion: no profile of process %d: %s\n", getpid(), profiler.failure);
    write_files();
    return 1;
}
