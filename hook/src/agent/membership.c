#include "agent/membership.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "agent/knowledge.h"
#include "hp/drain.h"
#include "learning/durations.h"
#include "orion/join.h"
#include "process/alive.h"
#include "process/policy.h"
#include "process/process.h"
#include "process/report.h"
#include "system/system.h"

#define MESSAGES_AT_ONCE 64u
#define ANSWER_WITHIN_NS (5 * ORION_SECOND)
#define AGAIN_WITHOUT_AGENT_NS (500 * ORION_MILLISECOND)
#define AGAIN_AFTER_LOSS_NS (100 * ORION_MILLISECOND)
#define AGAIN_WHEN_CROWDED_NS (5 * ORION_MILLISECOND)

void orion_membership_begin(struct orion_membership *membership, struct orion_process *process, struct orion_gpu *gpu)
{
    *membership = (struct orion_membership){.process = process, .gpu = gpu, .socket = -1, .busy = -1, .record = -1};
}

/* The first outcome lets waiting launches go. */
static void decide(struct orion_membership *m, enum orion_join_state state)
{
    uint32_t before = atomic_exchange(&m->gpu->join, state);
    if (before == state) return;
    if (before <= ORION_JOIN_TRYING) atomic_fetch_sub(&m->process->joining, 1);
    orion_futex_wake_all(&m->gpu->join, false);
}

static void unmanaged(struct orion_membership *m, enum orion_sentence why, const char *what)
{
    if (atomic_load(&m->gpu->role) != ORION_ROLE_NONE) return; /* managed under the last grant */
    orion_say_once_about(m->process, why, what);
    decide(m, ORION_JOIN_UNMANAGED);
}

static void managed(struct orion_membership *m, uint32_t role)
{
    uint32_t before = atomic_exchange(&m->gpu->role, role);
    if (before == ORION_ROLE_NONE) atomic_fetch_add(&m->process->managed, 1);
    decide(m, ORION_JOIN_MANAGED);
}

static void hang_up(struct orion_membership *m, uint64_t again_at)
{
    if (m->socket >= 0) close(m->socket);
    m->socket = -1;
    m->try_again_ns = again_at;
}

static void read_command(char command[16])
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t length = read(fd, command, 15);
    if (length > 0 && command[length - 1] == '\n') command[length - 1] = '\0';
    close(fd);
}

static int say_hello(struct orion_membership *m)
{
    struct orion_hello hello = {
        .head = {ORION_MESSAGE_MAGIC, ORION_HELLO},
        .layout_oldest = ORION_LAYOUT_OLDEST,
        .layout_newest = ORION_LAYOUT_NEWEST,
        .process_id = (uint32_t)getpid(),
        .hook_version = ORION_VERSION,
    };
    read_command(hello.command);
    int fds[2] = {m->busy, m->record};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {.bytes = {0}};
    struct iovec part = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (m->busy >= 0) {
        hello.flags = ORION_HELLO_RETURNS;
        hello.client_index = m->client_index;
        hello.generation = m->generation;
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), fds, sizeof fds);
    }
    return sendmsg(m->socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof hello ? 0 : -1;
}

static void try_to_connect(struct orion_membership *m, uint64_t now)
{
    uint32_t fresh = ORION_JOIN_NEW;
    atomic_compare_exchange_strong(&m->gpu->join, &fresh, ORION_JOIN_TRYING);
    m->socket = orion_agent_connect(m->gpu->uuid);
    m->welcome = false;
    m->answer_by_ns = now + ANSWER_WITHIN_NS;
    if (m->socket >= 0 && say_hello(m) == 0) return;
    bool crowded = errno == EAGAIN || errno == ETOOMANYREFS; /* an agent is there, with a full backlog */
    hang_up(m, now + (crowded ? AGAIN_WHEN_CROWDED_NS : m->busy >= 0 ? AGAIN_AFTER_LOSS_NS : AGAIN_WITHOUT_AGENT_NS));
    if (!crowded) unmanaged(m, ORION_SAY_NO_AGENT, m->gpu->uuid);
}

/* -- What the agent says --------------------------------------------------------------------------------------------- */

struct letter {
    union {
        struct orion_message head;
        struct orion_welcome welcome;
        struct orion_refused refused;
        struct orion_neighbours places;
        char bytes[ORION_MESSAGE_MAX];
    } body;
    size_t length;
    int fds[ORION_FDS_MAX + 8];
    uint32_t fd_count;
};

static bool long_enough(const struct letter *letter, size_t size) { return letter->length >= size; }

static void keep(int *kept, int *fd)
{
    if (*kept >= 0) close(*kept);
    *kept = *fd;
    *fd = -1;
}

/* Maps what came with a WELCOME: policy and grant, and for a fresh client its own busy and record page. */
static int map_own(struct orion_membership *m, struct letter *letter)
{
    bool returned = letter->body.welcome.returned != 0;
    if (letter->fd_count != (returned ? 2 : 4) || (returned && m->busy < 0)) return -1;
    for (int page = ORION_GPU_POLICY; page < (int)letter->fd_count; page++)
        if (orion_gpu_map(m->gpu, (enum orion_gpu_page)page, letter->fds[page]) != 0) return -1;
    if (returned) return 0;
    keep(&m->busy, &letter->fds[ORION_GPU_BUSY]);
    keep(&m->record, &letter->fds[ORION_GPU_RECORD]);
    m->client_index = letter->body.welcome.client_index;
    m->generation = letter->body.welcome.generation;
    m->gpu->record->process_id = (uint32_t)getpid();
    m->gpu->record->shares_context = orion_runs_together(m->gpu);
    read_command(m->gpu->record->command);
    orion_alive_hold(m->gpu);
    if (atomic_load(&m->gpu->role) == ORION_ROLE_HP) { /* new pages for one who may have work under way */
        atomic_store(&m->gpu->busy->state, ORION_BUSY);
        orion_drain_want(m->gpu);
    }
    return 0;
}

/* A returning client's pages are sealed already. */
static int say_ready(struct orion_membership *m, bool returned)
{
    struct orion_message ready = {ORION_MESSAGE_MAGIC, ORION_READY};
    return returned || send(m->socket, &ready, sizeof ready, MSG_NOSIGNAL) == (ssize_t)sizeof ready ? 0 : -1;
}

static void take_welcome(struct orion_membership *m, struct letter *letter, uint64_t now)
{
    uint32_t role = letter->body.welcome.role, layout = letter->body.welcome.layout;
    bool known = long_enough(letter, sizeof letter->body.welcome) && layout >= ORION_LAYOUT_OLDEST &&
                 layout <= ORION_LAYOUT_NEWEST && (role == ORION_ROLE_HP || role == ORION_ROLE_BE);
    if (!known || map_own(m, letter) != 0 || say_ready(m, letter->body.welcome.returned) != 0) {
        unmanaged(m, ORION_SAY_PAGES, m->gpu->uuid);
        hang_up(m, now + ORION_SECOND);
        return;
    }
    m->welcome = true;
    orion_telling_begin(&m->telling, orion_durations(m->process), &letter->body.welcome, now);
    /* be is managed when it knows whom to wait for: at its first NEIGHBOURS. */
    if (role == ORION_ROLE_HP || letter->body.welcome.returned) managed(m, role);
}

static void take_refused(struct orion_membership *m, struct letter *letter, uint64_t now)
{
    if (!long_enough(letter, sizeof letter->body.refused)) return;
    struct orion_refused *refused = &letter->body.refused;
    refused->text[sizeof refused->text - 1] = '\0';
    if (refused->code == ORION_REFUSED_PAGES) { /* not known to this agent any more: join again */
        if (m->busy >= 0) close(m->busy), close(m->record);
        m->busy = m->record = -1;
    } else if (refused->code != ORION_REFUSED_RATE) {
        unmanaged(m, ORION_SAY_REFUSED, refused->text);
    }
    uint64_t retry = refused->retry_ms < 60000 ? refused->retry_ms * ORION_MILLISECOND : 60 * ORION_SECOND;
    hang_up(m, now + (retry > ORION_MILLISECOND ? retry : ORION_MILLISECOND));
}

static void take_places(struct orion_membership *m, struct letter *letter)
{
    const struct orion_neighbours *news = &letter->body.places;
    size_t bare = offsetof(struct orion_neighbours, places);
    if (!long_enough(letter, bare) || news->count > ORION_FDS_MAX ||
        !long_enough(letter, bare + news->count * sizeof news->places[0]))
        return;
    bool gone = news->head.type == ORION_GONE;
    for (uint32_t i = 0; i < news->count; i++) {
        if (gone) orion_gpu_drop_neighbour(m->gpu, news->places[i].client_index, news->places[i].generation);
        else if (i < letter->fd_count)
            orion_gpu_map_neighbour(m->gpu, news->places[i].client_index, news->places[i].generation, letter->fds[i]);
    }
    if (!gone && m->welcome) managed(m, ORION_ROLE_BE);
}

static void take_knowledge(struct orion_membership *m, struct letter *letter)
{
    struct orion_durations *durations = orion_durations(m->process);
    if (letter->fd_count != 1 || orion_knowledge_take(durations, letter->fds[0]) == 0) return;
    atomic_store_explicit(&m->gpu->record->kernels_known, atomic_load(&durations->known), memory_order_relaxed);
}

static void take(struct orion_membership *m, struct letter *letter, uint64_t now)
{
    if (!long_enough(letter, sizeof letter->body.head) || letter->body.head.magic != ORION_MESSAGE_MAGIC) return;
    switch (letter->body.head.type) {
    case ORION_WELCOME: take_welcome(m, letter, now); break;
    case ORION_REFUSED: take_refused(m, letter, now); break;
    case ORION_NEIGHBOURS:
    case ORION_GONE: take_places(m, letter); break;
    case ORION_KNOWLEDGE: take_knowledge(m, letter); break;
    default: break; /* a newer agent's news */
    }
}

static ssize_t receive(struct orion_membership *m, struct letter *letter)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof letter->fds)];
    } control;
    struct iovec part = {letter->body.bytes, sizeof letter->body.bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    letter->fd_count = 0;
    ssize_t length = recvmsg(m->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0) return length;
    letter->length = (size_t)length;
    for (struct cmsghdr *part_of = CMSG_FIRSTHDR(&message); part_of != NULL; part_of = CMSG_NXTHDR(&message, part_of)) {
        if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
        size_t bytes = part_of->cmsg_len - CMSG_LEN(0);
        memcpy(letter->fds, CMSG_DATA(part_of), bytes);
        letter->fd_count = (uint32_t)(bytes / sizeof letter->fds[0]);
    }
    return length;
}

static void take_news(struct orion_membership *m, uint64_t now)
{
    struct letter letter;
    for (unsigned i = 0; i < MESSAGES_AT_ONCE && m->socket >= 0; i++) {
        ssize_t length = receive(m, &letter);
        if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (length > 0) take(m, &letter, now);
        for (uint32_t j = 0; j < letter.fd_count; j++)
            if (letter.fds[j] >= 0) close(letter.fds[j]);
        if (length <= 0) { /* the agent has gone: what it granted last stands */
            hang_up(m, now + (m->busy >= 0 ? AGAIN_AFTER_LOSS_NS : AGAIN_WITHOUT_AGENT_NS));
            unmanaged(m, ORION_SAY_NO_AGENT, m->gpu->uuid);
        }
    }
}

void orion_membership_attend(struct orion_membership *m, uint64_t now)
{
    if (m->socket < 0 && now >= m->try_again_ns) try_to_connect(m, now);
    if (m->socket < 0) return;
    take_news(m, now);
    if (m->socket >= 0 && m->welcome) orion_telling_attend(&m->telling, orion_durations(m->process), m->socket, now);
    if (m->socket < 0 || m->welcome || now < m->answer_by_ns) return;
    unmanaged(m, ORION_SAY_NO_AGENT, m->gpu->uuid);
    hang_up(m, now + AGAIN_WITHOUT_AGENT_NS);
}

uint64_t orion_membership_due(const struct orion_membership *m, uint64_t now)
{
    uint64_t at = m->socket < 0 ? m->try_again_ns : m->welcome ? m->telling.at_ns : m->answer_by_ns;
    return at == UINT64_MAX ? UINT64_MAX : at > now ? at - now : 0;
}
