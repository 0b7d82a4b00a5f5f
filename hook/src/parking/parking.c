#include "parking/parking.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "parking/steps.h"
#include "process/gpu.h"
#include "process/parking_wish.h"
#include "process/process.h"
#include "process/report.h"
#include "process/waits.h"
#include "system/spawn.h"
#include "system/system.h"

#define POLL_NS (250 * ORION_MILLISECOND)
#define AWAIT_NS (3600 * ORION_SECOND)
#define UNKNOWN_NS (20 * ORION_SECOND) /* for an agent that does not know ORION_HELLO_IS_AWAY to say what the process shall do */

struct orion_parking {
    _Atomic uint32_t awaits;               /* 1: a thread waits until a slot parks, and is the parker then */
    _Atomic uint32_t thread;               /* the parker's thread id; 0: it has not begun */
    _Atomic uint32_t away;                 /* 1: the process has left, and the parker knows */
    _Atomic uint32_t ends;                 /* 1: the process exits */
    _Atomic uint32_t answered[ORION_GPUS]; /* by GPU: the wish that was answered last */
    _Atomic uint64_t unknown_until;        /* until then only a newer wish lets it come back; 0: the agent knows that it is away */
};
ORION_PART(parking)

/* -- What the agent reads -------------------------------------------------------------------------------------------- */

/* Answers the wishes that the caller has noted. */
static void say(struct orion_process *process, enum orion_parking_state state, struct orion_parking_outcome outcome)
{
    for (uint32_t i = 0; i < orion_process_gpus(process); i++) {
        struct orion_gpu *gpu = &process->gpus[i];
        uint32_t number = atomic_load(&orion_parking(process)->answered[i]);
        if (atomic_load(&gpu->role) != ORION_ROLE_BE) continue;
        atomic_store(&gpu->record->parking_since_ns, orion_now());
        atomic_store(&gpu->record->parking, orion_pack_parking(number, (uint32_t)outcome.result, outcome.reason, state));
    }
}

/* Notes the wishes that the next answer is about. Returns whether one of them is new; *away: whether one of them is to leave.
 * Each word is read once: a wish that came between two reads would count as answered, and nobody would obey it. */
static bool note_wishes(struct orion_process *process, bool *away)
{
    bool newer = false;
    *away = false;
    for (uint32_t i = 0; i < orion_process_gpus(process); i++) {
        uint32_t number = orion_parking_number(&process->gpus[i]);
        *away |= orion_parking_is_a_wish(number);
        newer |= atomic_exchange(&orion_parking(process)->answered[i], number) != number;
    }
    return newer;
}

/* -- The parker ------------------------------------------------------------------------------------------------------ */

static const struct orion_parking_outcome well = {ORION_PARKING_REASON_NONE, CUDA_SUCCESS};

static void let_launches_go(struct orion_process *process)
{
    atomic_fetch_and(&process->errands, ~(uint32_t)ORION_ERRAND_STAY);
    orion_futex_wake_all(&process->errands, false);
}

/* Whether leaving has become pointless. */
static bool is_over(struct orion_process *process)
{
    return !orion_parking_is_wished(process) || atomic_load(&orion_parking(process)->ends);
}

static void leave(struct orion_process *process)
{
    struct orion_parking_outcome outcome = {orion_parking_refusal(process), CUDA_SUCCESS};
    if (outcome.reason != ORION_PARKING_REASON_NONE) {
        say(process, ORION_PARKING_REFUSED, outcome);
        return;
    }
    bool stopped;
    say(process, ORION_PARKING_LEAVING, well);
    atomic_fetch_or(&process->errands, ORION_ERRAND_STAY);
    outcome = orion_parking_leave(process, is_over, &stopped);
    if (outcome.reason == ORION_PARKING_REASON_NONE) {
        atomic_store(&orion_parking(process)->away, 1);
        say(process, ORION_PARKING_PARKED, well);
        orion_say_once(process, ORION_SAY_PARKED);
        return;
    }
    let_launches_go(process); /* if it has stopped, the next look answers the newer wish */
    say(process, stopped ? ORION_PARKING_RUNNING : ORION_PARKING_REFUSED, stopped ? well : outcome);
}

static void come_back(struct orion_process *process)
{
    say(process, ORION_PARKING_RETURNING, well);
    struct orion_parking_outcome outcome = orion_parking_return(process);
    bool lost = outcome.reason != ORION_PARKING_REASON_NONE;
    atomic_store(&orion_parking(process)->away, 0);
    let_launches_go(process);
    say(process, lost ? ORION_PARKING_LOST : ORION_PARKING_RUNNING, outcome);
    if (lost) orion_say_once(process, ORION_SAY_LOST);
}

/* Whether the process has got a new record page, which does not say yet that it is away. */
static bool is_unknown(struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process)
        if (atomic_load(&gpu->role) == ORION_ROLE_BE && atomic_load(&gpu->record->parking) == 0) return true;
    return false;
}

/* Whether the process may come back, as no slot wants it away. An agent that did not know the process has not looked for room.
 * It wishes that the process stays away before the process has its pages. So a new page without that wish is one of an agent of
 * an earlier version: that reads that the process is away, and may say more. It need not, so this ends. */
static bool may_come_back(struct orion_process *process, bool newer)
{
    _Atomic uint64_t *until = &orion_parking(process)->unknown_until;
    if (is_unknown(process)) {
        atomic_store(until, orion_now() + UNKNOWN_NS);
        say(process, ORION_PARKING_PARKED, well);
        return false;
    }
    return newer || orion_now() >= atomic_load(until);
}

/* One look at the wishes. */
static void obey(struct orion_process *process)
{
    bool wished, newer = note_wishes(process, &wished), away = atomic_load(&orion_parking(process)->away) != 0;
    if (wished) atomic_store(&orion_parking(process)->unknown_until, 0);
    if (away && !wished) {
        if (may_come_back(process, newer)) come_back(process);
        return;
    }
    if (away && (newer || is_unknown(process))) say(process, ORION_PARKING_PARKED, well);
    else if (!away && wished && newer && !atomic_load(&orion_parking(process)->ends)) leave(process);
    else if (!away && newer) say(process, ORION_PARKING_RUNNING, well); /* nothing to do: the agent has changed its mind */
}

/* An earlier parker may have been ended by the program in the middle of a step. */
static void begin_again(struct orion_process *process)
{
    if (atomic_exchange(&orion_parking(process)->thread, (uint32_t)syscall(SYS_gettid)) == 0) return;
    if (!(atomic_load(&process->errands) & ORION_ERRAND_STAY)) return;
    atomic_store(&orion_parking(process)->away, orion_parking_is_away(process));
    if (atomic_load(&orion_parking(process)->away)) {
        say(process, ORION_PARKING_PARKED, well);
        return;
    }
    let_launches_go(process);
    say(process, ORION_PARKING_REFUSED, well); /* it tries again upon a newer wish */
}

static void *park(void *argument)
{
    struct orion_process *process = argument;
    prctl(PR_SET_NAME, "orion-park", 0, 0, 0);
    begin_again(process);
    for (;;) {
        uint32_t notifier = atomic_load(&process->parking_notifier);
        obey(process);
        orion_futex_wait(&process->parking_notifier, notifier, POLL_NS, false);
    }
    return NULL;
}

static bool has_a_slot_that_parks(struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process)
        if (atomic_load(&gpu->role) == ORION_ROLE_BE && orion_gpu_grant(gpu)->parks) return true;
    return false;
}

/* A process may join late, and a slot may park only later. A thread that begins then would have no thread of the program to start
 * it, if the program only allocates, or does nothing. */
static void *await_and_park(void *argument)
{
    uint32_t notifier, none = 0;
    struct orion_gpu *gpu = argument;
    struct orion_process *process = orion_the_process;
    orion_gpu_await_join(gpu);
    if (has_a_slot_that_parks(process)) return park(process);
    prctl(PR_SET_NAME, "orion-park", 0, 0, 0);
    atomic_store(&process->parks, 0);
    if (atomic_load(&gpu->role) == ORION_ROLE_HP) {
        atomic_store(&orion_parking(process)->awaits, 0);
        return NULL;
    }
    while (notifier = atomic_load(&process->parking_notifier), !has_a_slot_that_parks(process))
        orion_futex_wait(&process->parking_notifier, notifier, AWAIT_NS, false);
    return atomic_compare_exchange_strong(&process->parks, &none, 1) ? park(process) : NULL; /* a launch has started another one */
}

/* -- For the program's threads --------------------------------------------------------------------------------------- */

void orion_parking_start(struct orion_process *process, const struct orion_gpu *gpu)
{
    atomic_fetch_and(&process->errands, ~(uint32_t)ORION_ERRAND_PARKER);
    if (orion_gpu_grant(gpu)->parks) orion_thread_spawn_once(&process->parks, park, process);
}

void orion_parking_start_once_joined(struct orion_process *process, struct orion_gpu *gpu)
{
    uint32_t none = 0;
    struct orion_parking *parking = orion_parking(process);
    if (atomic_exchange(&parking->awaits, 1)) return;
    if (atomic_compare_exchange_strong(&process->parks, &none, 1)) { /* else a parker runs */
        if (orion_thread_spawn(await_and_park, gpu) == 0) return;
        atomic_store(&process->parks, 0);
    }
    atomic_store(&parking->awaits, 0);
}

/* Some programs end threads that they do not know. Nobody else would let the waiting launches go. */
static void revive(struct orion_process *process)
{
    uint32_t thread = atomic_load(&orion_parking(process)->thread);
    if (thread == 0) return;
    int kept = errno;
    if (syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH && atomic_load(&orion_parking(process)->thread) == thread) {
        atomic_store(&process->parks, 0);
        orion_thread_spawn_once(&process->parks, park, process);
    }
    errno = kept;
}

void orion_parking_await(struct orion_process *process)
{
    for (uint32_t errands; (errands = atomic_load(&process->errands)) & ORION_ERRAND_STAY;) {
        revive(process);
        orion_futex_wait(&process->errands, errands, POLL_NS, false);
    }
}

void orion_parking_stay(struct orion_process *process, struct orion_gpu *gpu)
{
    uint64_t began = orion_waits_begin(gpu);
    orion_parking_await(process);
    orion_waits_end(gpu, began);
}

void orion_parking_end(struct orion_process *process) { atomic_store(&orion_parking(process)->ends, 1); }
