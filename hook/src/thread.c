#include "thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process.h"
#include "report.h"
#include "system.h"
#include "agent/alive.h"
#include "agent/membership.h"
#include "hp/busy.h"

#define STACK_BYTES (1024u << 10)                 /* room for the host program's thread-local storage */
#define HP_SOCKET_LOOK_NS (250 * ORION_MILLISECOND) /* hp gets no news but an agent's restart */
#define BE_LOOK_NS (2 * ORION_SECOND)

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2u
#endif

int orion_thread_spawn(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, kept;
    int error = errno;
    if (pthread_attr_init(&attributes) != 0) return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int result = pthread_create(&thread, &attributes, body, argument);
    if (result != 0) { /* thread-local storage larger than this stack: the default one, then */
        pthread_attr_setstacksize(&attributes, 8u << 20);
        result = pthread_create(&thread, &attributes, body, argument);
    }
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    pthread_attr_destroy(&attributes);
    errno = error;
    return result == 0 ? 0 : -1;
}

static void count_launches(struct orion_process *process, struct orion_board *board)
{
    uint64_t launches = 0;
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used; i++)
        if (process->lanes.lane[i].board == board) launches += atomic_load_explicit(&process->lanes.lane[i].begun, memory_order_relaxed);
    atomic_store_explicit(&board->record->launches, launches, memory_order_relaxed);
}

/* hp: sleeps on the bell. While this thread is awake nobody rings, so it looks once more at the state after publishing
 * when it will wake: a launch or a proof between the two looks keeps it awake, one after them sees the time and rings if
 * that is too late. */
static void sleep_as_hp(struct orion_process *process, struct orion_board *board, uint64_t due)
{
    uint32_t bell = atomic_load(&board->bell), before = atomic_load(&board->busy->state);
    uint64_t now = orion_now();
    uint64_t next = orion_busy_attend(process, board, now);
    if (next > due) next = due;
    if (next > HP_SOCKET_LOOK_NS) next = HP_SOCKET_LOOK_NS;
    atomic_store(&board->wake_at_ns, now + next);
    uint32_t after = atomic_load(&board->busy->state);
    bool same = after == before || (before == ORION_LINGER && after == ORION_IDLE); /* the latter is its own doing */
    if (same) orion_futex_wait(&board->bell, bell, next, false);
    atomic_store(&board->wake_at_ns, 0); /* awake: nobody has to ring */
}

static void sleep_on_socket(const struct orion_membership *membership, uint64_t due)
{
    struct pollfd socket = {.fd = membership->socket, .events = POLLIN};
    uint64_t most = due < BE_LOOK_NS ? due : BE_LOOK_NS;
    poll(&socket, 1, (int)(most / ORION_MILLISECOND) + (most % ORION_MILLISECOND != 0));
}

static void attend(struct orion_membership *membership)
{
    struct orion_board *board = membership->board;
    uint64_t socket_look = 0;
    for (;;) {
        uint64_t now = orion_now();
        bool hp = atomic_load(&board->role) == ORION_ROLE_HP, threads = orion_inprocess_runs(membership->process);
        if (!hp || now >= socket_look || orion_membership_due(membership, now) == 0) {
            if (!threads) orion_membership_attend(membership, now);
            socket_look = now + HP_SOCKET_LOOK_NS;
            count_launches(membership->process, board);
        }
        uint64_t due = threads ? BE_LOOK_NS : orion_membership_due(membership, now);
        if (atomic_load(&board->role) == ORION_ROLE_HP) sleep_as_hp(membership->process, board, due);
        else sleep_on_socket(membership, due);
    }
}

/* A client of threads has nobody to join. Without a role it waits for the next scheduler. */
static void attend_client(struct orion_process *process, struct orion_board *board)
{
    orion_alive_hold(board);
    for (;;) {
        uint32_t bell = atomic_load(&board->bell);
        if (atomic_load(&board->role) == ORION_ROLE_HP) {
            sleep_as_hp(process, board, UINT64_MAX);
            continue;
        }
        atomic_store(&board->wake_at_ns, UINT64_MAX);
        if (atomic_load(&board->role) != ORION_ROLE_HP) orion_futex_wait(&board->bell, bell, BE_LOOK_NS, false);
        atomic_store(&board->wake_at_ns, 0);
    }
}

static void *run(void *argument)
{
    struct orion_board *board = argument;
    struct orion_membership membership;
    /* A descriptor table of its own: emptied while it is unshared, or else only unshared, or else shared. */
    if (syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) != 0) syscall(SYS_unshare, 0x400 /* CLONE_FILES */);
    orion_report_from_another_table();
    prctl(PR_SET_NAME, "orion", 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    if (board->client != 0) attend_client(orion_the_process, board);
    orion_membership_begin(&membership, orion_the_process, board);
    attend(&membership);
    return NULL;
}

void orion_thread_start(struct orion_process *process, struct orion_board *board)
{
    uint32_t stopped = 0;
    if (!atomic_compare_exchange_strong(&board->thread_runs, &stopped, 1)) return;
    int kept = errno;
    if (orion_thread_spawn(run, board) != 0) { /* no thread to be had: unmanaged */
        if (atomic_exchange(&board->join, ORION_JOIN_UNMANAGED) <= ORION_JOIN_TRYING) atomic_fetch_sub(&process->joining, 1);
        orion_futex_wake_all(&board->join, false);
        atomic_store(&board->thread_runs, 0);
    }
    errno = kept;
}

void orion_thread_revive(struct orion_board *board)
{
    if (orion_alive_is_held(board)) return;
    uint32_t runs = 1;
    if (!atomic_compare_exchange_strong(&board->thread_runs, &runs, 0)) return;
    atomic_store(&board->wake_at_ns, 0);
    orion_thread_start(orion_the_process, board);
}

void orion_thread_wake_by(struct orion_board *board, uint64_t when)
{
    if (__builtin_expect(!orion_alive_is_held(board), 0)) {
        orion_thread_revive(board);
        return;
    }
    if (atomic_load(&board->wake_at_ns) <= when) return; /* awake, or so soon */
    atomic_fetch_add(&board->bell, 1);
    orion_futex_wake_all(&board->bell, false);
}
