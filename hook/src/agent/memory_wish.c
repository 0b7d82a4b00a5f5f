#include "agent/memory_wish.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "process/gpu.h"
#include "process/process.h"
#include "process/report.h"
#include "system/descriptors.h"
#include "system/spawn.h"
#include "system/system.h"

#define ANSWER_NS (250 * ORION_MILLISECOND)
#define THREAD_NS (400 * ORION_MILLISECOND) /* of a thread that must begin; shorter than a turn to ask (asking.c) */

static enum orion_credit_answer answer_on(int fd)
{
    struct orion_credit credit = {0};
    uint64_t now = orion_now(), until = now + ANSWER_NS;
    for (; now < until; now = orion_now()) {
        struct pollfd answer = {.fd = fd, .events = POLLIN};
        int ready = poll(&answer, 1, (int)((until - now) / ORION_MILLISECOND) + 1);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) break;
        ssize_t got = recv(fd, &credit, sizeof credit, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got == (ssize_t)sizeof credit && credit.head.type == ORION_CREDIT) return (enum orion_credit_answer)credit.answer;
        break;
    }
    return ORION_NO_ANSWER;
}

/* *why: 0, or why there is no connection. */
static enum orion_credit_answer ask(const char *uuid, const struct orion_memory_wish *wish, int *why)
{
    enum orion_credit_answer answer = ORION_NO_ANSWER;
    int fd = orion_agent_connect(uuid);
    *why = fd < 0 ? errno : 0;
    if (fd < 0) return answer;
    if (send(fd, wish, sizeof *wish, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *wish) answer = answer_on(fd);
    close(fd);
    return answer;
}

/* -- By a thread with descriptors of its own --------------------------------------------------------------------------- */

/* Of two threads. The last one frees it: the one that waits may give up. */
struct errand {
    _Atomic uint32_t owners, ended; /* ended: a private futex */
    struct orion_memory_wish wish;
    char uuid[48];
    enum orion_credit_answer answer;
    int why;
};

static void drop(struct errand *errand)
{
    if (atomic_fetch_sub(&errand->owners, 1) == 1) free(errand);
}

static void *run(void *argument)
{
    struct errand *errand = argument;
    prctl(PR_SET_NAME, "orion-ask", 0, 0, 0);
    orion_descriptors_leave();
    errand->answer = ask(errand->uuid, &errand->wish, &errand->why);
    atomic_store(&errand->ended, 1);
    orion_futex_wake_all(&errand->ended, false);
    drop(errand);
    return NULL;
}

/* Rejected: the thread of the GPU asks. It sleeps on its socket, and each allocation would wait until it wakes up. */
static enum orion_credit_answer ask_by_thread(const char *uuid, const struct orion_memory_wish *wish, int *why)
{
    enum orion_credit_answer answer = ORION_NO_ANSWER;
    struct errand *errand = malloc(sizeof *errand);
    if (errand == NULL) return answer;
    *errand = (struct errand){.owners = 2, .wish = *wish, .why = *why};
    memcpy(errand->uuid, uuid, sizeof errand->uuid);
    if (orion_thread_spawn(run, errand) != 0) {
        free(errand);
        return answer;
    }
    for (uint64_t now = orion_now(), until = now + THREAD_NS; now < until && !atomic_load(&errand->ended); now = orion_now())
        orion_futex_wait(&errand->ended, 0, until - now, false);
    *why = 0;
    if (atomic_load(&errand->ended)) answer = errand->answer, *why = errand->why;
    drop(errand);
    return answer;
}

enum orion_credit_answer orion_memory_ask(const struct orion_gpu *gpu, enum orion_message_type type, uint64_t bytes)
{
    struct orion_memory_wish wish = {
        .head = {ORION_MESSAGE_MAGIC, type},
        .client_index = gpu->record->client_index,
        .generation = gpu->record->generation,
        .bytes = bytes,
    };
    int kept = errno, why;
    enum orion_credit_answer answer = ask(gpu->uuid, &wish, &why);
    if (why == EMFILE) answer = ask_by_thread(gpu->uuid, &wish, &why);
    if (why == EMFILE) orion_say_once(orion_the_process, ORION_SAY_DESCRIPTORS);
    errno = kept;
    return answer;
}
