#include "agent/thread.h"

#include <poll.h>
#include <sys/prctl.h>

#include "agent/membership.h"
#include "hp/busy.h"
#include "memory/memory.h"
#include "process/alive.h"
#include "process/notifier.h"
#include "process/parking_wish.h"
#include "process/policy.h"
#include "process/process.h"
#include "process/report.h"
#include "slices/time_slice.h"
#include "streams/stream_records.h"
#include "system/descriptors.h"
#include "system/environment.h"
#include "system/system.h"

/* How often hp's thread reads the socket; no message from the agent is urgent for hp. */
#define HP_SOCKET_POLL_NS (250 * ORION_MILLISECOND)
#define BE_POLL_NS (250 * ORION_MILLISECOND) /* how often launches are counted for the record page */

static void count_launches(struct orion_process *process, struct orion_gpu *gpu, uint64_t now)
{
    uint64_t launches = 0;
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu)
        launches += atomic_load_explicit(&stream_record->begun, memory_order_relaxed);
    atomic_store_explicit(&gpu->record->launches, launches, memory_order_relaxed);
    /* release: a reader that sees this time sees this count. */
    atomic_store_explicit(&gpu->record->launches_counted_ns, now, memory_order_release);
}

/* Sleeps on hp's notifier. While this thread is awake, wake_at_ns is 0 and other threads do not wake it. So the thread
 * publishes when it will wake, then reads the state again. If a launch or a proof changed the state between the two
 * reads, this thread does not sleep. A launch or a proof after the second read sees the published time, and wakes this
 * thread if that time is too late. */
static void sleep_as_hp(struct orion_process *process, struct orion_gpu *gpu, uint64_t due)
{
    uint32_t notifier = atomic_load(&gpu->notifier), before = atomic_load(&gpu->busy->state);
    uint64_t now = orion_now();
    uint64_t next = orion_busy_poll(process, gpu, now);
    if (next == UINT64_MAX) before = ORION_IDLE; /* as the poll found it, or made it */
    if (next > due) next = due;
    if (next > HP_SOCKET_POLL_NS) next = HP_SOCKET_POLL_NS;
    atomic_store(&gpu->wake_at_ns, now + next);
    if (atomic_load(&gpu->busy->state) == before) orion_futex_wait(&gpu->notifier, notifier, next, false);
    atomic_store(&gpu->wake_at_ns, 0); /* awake: others need not wake it */
}

static void sleep_on_socket(const struct orion_membership *membership, uint64_t due)
{
    struct pollfd socket = {.fd = membership->socket, .events = POLLIN};
    uint64_t most = due < BE_POLL_NS ? due : BE_POLL_NS;
    poll(&socket, 1, (int)(most / ORION_MILLISECOND) + (most % ORION_MILLISECOND != 0));
}

static void serve_gpu(struct orion_membership *membership)
{
    struct orion_gpu *gpu = membership->gpu;
    uint64_t socket_poll_ns = 0;
    for (;;) {
        uint64_t now = orion_now();
        bool hp = atomic_load(&gpu->role) == ORION_ROLE_HP, threads = orion_process_has_scheduler(membership->process);
        if (!hp || now >= socket_poll_ns || orion_membership_due(membership, now) == 0) {
            if (!threads) orion_membership_poll(membership, now);
            socket_poll_ns = now + HP_SOCKET_POLL_NS;
            count_launches(membership->process, gpu, now);
            orion_memory_publish(membership->process, gpu); /* a new agent's credit has another epoch */
            orion_time_slice_decide(membership->process);
            orion_parking_look(membership->process, gpu);
            if (!orion_policy_is_known(orion_gpu_policy(gpu)->kind)) orion_say_once(membership->process, ORION_SAY_POLICY);
        }
        uint64_t due = threads ? BE_POLL_NS : orion_membership_due(membership, now);
        if (atomic_load(&gpu->role) == ORION_ROLE_HP) sleep_as_hp(membership->process, gpu, due);
        else sleep_on_socket(membership, due);
    }
}

/* A client that is a thread of this process joins no agent. While it has no role, it waits for the next scheduler of
 * threads. */
static void serve_thread_client(struct orion_process *process, struct orion_gpu *gpu)
{
    orion_alive_hold(gpu);
    for (;;) {
        uint32_t notifier = atomic_load(&gpu->notifier);
        if (atomic_load(&gpu->role) == ORION_ROLE_HP) {
            sleep_as_hp(process, gpu, UINT64_MAX);
            continue;
        }
        atomic_store(&gpu->wake_at_ns, UINT64_MAX);
        if (atomic_load(&gpu->role) != ORION_ROLE_HP) orion_futex_wait(&gpu->notifier, notifier, BE_POLL_NS, false);
        atomic_store(&gpu->wake_at_ns, 0);
    }
}

static void *run(void *argument)
{
    struct orion_gpu *gpu = argument;
    struct orion_membership membership;
    orion_descriptors_leave();
    orion_report_from_another_table();
    prctl(PR_SET_NAME, "orion", 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    if (gpu->client != 0) serve_thread_client(orion_the_process, gpu);
    orion_membership_begin(&membership, orion_the_process, gpu);
    serve_gpu(&membership);
    return NULL;
}

void orion_thread_start(struct orion_process *process, struct orion_gpu *gpu)
{
    orion_environment(); /* the program's thread reads the environment, never the hook's */
    orion_notifier_start(process, gpu, run);
}
