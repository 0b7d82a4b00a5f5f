#include "agent/membership.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "agent/knowledge.h"
#include "agent/known_limit.h"
#include "agent/unknown_report.h"
#include "hp/drain.h"
#include "learning/durations.h"
#include "memory/memory.h"
#include "orion/join.h"
#include "process/alive.h"
#include "process/policy.h"
#include "process/process.h"
#include "process/report.h"
#include "system/system.h"

#define MESSAGES_AT_ONCE 64u
#define ANSWER_WITHIN_NS (5 * ORION_SECOND)
#define RETRY_WITHOUT_AGENT_NS (500 * ORION_MILLISECOND)
#define RETRY_AFTER_LOSS_NS (100 * ORION_MILLISECOND)
#define RETRY_WHEN_CROWDED_NS (5 * ORION_MILLISECOND)

void orion_membership_begin(struct orion_membership *membership, struct orion_process *process, struct orion_gpu *gpu)
{
    *membership = (struct orion_membership){.process = process, .gpu = gpu, .socket = -1, .busy = -1, .record = -1, .job = -1};
}

/* Launches that wait for the join continue when the first join has succeeded or failed. */
static void set_join_state(struct orion_membership *m, enum orion_join_state state)
{
    uint32_t before = atomic_exchange(&m->gpu->join, state);
    if (before == state) return;
    if (before <= ORION_JOIN_TRYING) atomic_fetch_sub(&m->process->joining, 1);
    orion_futex_wake_all(&m->gpu->join, false);
}

static void unmanaged(struct orion_membership *m, enum orion_sentence why, const char *what)
{
    if (atomic_load(&m->gpu->role) != ORION_ROLE_NONE) return; /* stays managed under the last grant */
    orion_say_once_about(m->process, why, what);
    set_join_state(m, ORION_JOIN_UNMANAGED);
}

static void managed(struct orion_membership *m, uint32_t role)
{
    uint32_t before = atomic_exchange(&m->gpu->role, role);
    if (before == ORION_ROLE_NONE) atomic_fetch_add(&m->process->managed, 1);
    set_join_state(m, ORION_JOIN_MANAGED);
}

static void disconnect(struct orion_membership *m, uint64_t retry_ns)
{
    if (m->socket >= 0) close(m->socket);
    m->socket = -1;
    m->try_again_ns = retry_ns;
}

static void read_command(char command[16])
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t length = read(fd, command, 15);
    if (length > 0 && command[length - 1] == '\n') command[length - 1] = '\0';
    close(fd);
}

static int send_hello(struct orion_membership *m)
{
    struct orion_hello hello = {
        .head = {ORION_MESSAGE_MAGIC, ORION_HELLO},
        .layout_oldest = ORION_LAYOUT_OLDEST,
        .layout_newest = ORION_LAYOUT_NEWEST,
        .flags = ORION_HELLO_KEEPS_CREDIT,
        .process_id = (uint32_t)getpid(),
        .hook_version = ORION_VERSION,
    };
    read_command(hello.command);
    int fds[3] = {m->busy, m->record, m->job};
    size_t bytes = (m->job >= 0 ? 3 : 2) * sizeof fds[0];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {.bytes = {0}};
    struct iovec part = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (m->busy >= 0) {
        hello.flags |= ORION_HELLO_RETURNS;
        hello.client_index = m->client_index;
        hello.generation = m->generation;
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(bytes);
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), fds, bytes);
    } else if (atomic_load(&m->process->errands) & ORION_ERRAND_STAY) {
        hello.flags |= ORION_HELLO_IS_AWAY; /* the agent does not know, and has not looked for room */
    }
    return sendmsg(m->socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof hello ? 0 : -1;
}

static void try_to_connect(struct orion_membership *m, uint64_t now)
{
    uint32_t fresh = ORION_JOIN_NEW;
    atomic_compare_exchange_strong(&m->gpu->join, &fresh, ORION_JOIN_TRYING);
    if (atomic_load(&m->gpu->role) == ORION_ROLE_NONE) atomic_store(&m->gpu->known_limit, orion_known_limit(m->gpu->uuid));
    m->socket = orion_agent_connect(m->gpu->uuid);
    m->welcome = false;
    m->answer_by_ns = now + ANSWER_WITHIN_NS;
    if (m->socket >= 0 && send_hello(m) == 0) return;
    bool crowded = errno == EAGAIN || errno == ETOOMANYREFS; /* an agent listens, but its backlog is full */
    disconnect(m, now + (crowded ? RETRY_WHEN_CROWDED_NS : m->busy >= 0 ? RETRY_AFTER_LOSS_NS : RETRY_WITHOUT_AGENT_NS));
    if (!crowded) unmanaged(m, ORION_SAY_NO_AGENT, m->gpu->uuid);
}

/* -- Messages from the agent ----------------------------------------------------------------------------------------- */

struct incoming {
    union {
        struct orion_message head;
        struct orion_welcome welcome;
        struct orion_refused refused;
        struct orion_neighbours neighbours;
        struct orion_job job;
        char bytes[ORION_MESSAGE_MAX];
    } body;
    size_t length;
    int fds[ORION_FDS_MAX + 8];
    uint32_t fd_count;
};

static bool long_enough(const struct incoming *incoming, size_t size) { return incoming->length >= size; }

static void keep(int *kept, int *fd)
{
    if (*kept >= 0) close(*kept);
    *kept = *fd;
    *fd = -1;
}

/* Maps the pages of a WELCOME: policy and grant, and for a new client its own busy and record page. */
static int map_own(struct orion_membership *m, struct incoming *incoming)
{
    bool returned = incoming->body.welcome.returned != 0;
    if (incoming->fd_count != (returned ? 2 : 4) || (returned && m->busy < 0)) return -1;
    for (int page = ORION_GPU_POLICY; page < (int)incoming->fd_count; page++)
        if (orion_gpu_map(m->gpu, (enum orion_gpu_page)page, incoming->fds[page]) != 0) return -1;
    m->is_new = !returned; /* one that has returned gets the changes only */
    if (returned) return 0;
    keep(&m->busy, &incoming->fds[ORION_GPU_BUSY]);
    keep(&m->record, &incoming->fds[ORION_GPU_RECORD]);
    m->client_index = incoming->body.welcome.client_index;
    m->generation = incoming->body.welcome.generation;
    m->gpu->record->process_id = (uint32_t)getpid();
    m->gpu->record->shares_context = orion_runs_together(m->gpu);
    read_command(m->gpu->record->command);
    orion_alive_hold(m->gpu);
    orion_memory_publish(m->process, m->gpu);          /* before READY: the agent gives others what this client does not hold */
    if (atomic_load(&m->gpu->role) == ORION_ROLE_HP) { /* the pages are new, but work may be in flight */
        atomic_store(&m->gpu->busy->state, ORION_BUSY);
        orion_drain_request(m->gpu);
    }
    return 0;
}

/* A returning client sends no READY: its pages are already sealed. */
static int send_ready(struct orion_membership *m, bool returned)
{
    struct orion_message ready = {ORION_MESSAGE_MAGIC, ORION_READY};
    return returned || send(m->socket, &ready, sizeof ready, MSG_NOSIGNAL) == (ssize_t)sizeof ready ? 0 : -1;
}

static void handle_welcome(struct orion_membership *m, struct incoming *incoming, uint64_t now)
{
    uint32_t role = incoming->body.welcome.role, layout = incoming->body.welcome.layout;
    bool known = long_enough(incoming, sizeof incoming->body.welcome) && layout >= ORION_LAYOUT_OLDEST &&
                 layout <= ORION_LAYOUT_NEWEST && (role == ORION_ROLE_HP || role == ORION_ROLE_BE);
    if (!known || map_own(m, incoming) != 0 || send_ready(m, incoming->body.welcome.returned) != 0) {
        unmanaged(m, ORION_SAY_PAGES, m->gpu->uuid);
        disconnect(m, now + ORION_SECOND);
        return;
    }
    m->welcome = true;
    m->unknown_reported = 0;
    orion_knowledge_reports_begin(&m->reports, orion_durations(m->process), &incoming->body.welcome, now);
    /* A be client is managed after its first NEIGHBOURS message: only then does it know the hp clients to wait for. */
    if (role == ORION_ROLE_HP || incoming->body.welcome.returned) managed(m, role);
}

static void handle_refused(struct orion_membership *m, struct incoming *incoming, uint64_t now)
{
    if (!long_enough(incoming, sizeof incoming->body.refused)) return;
    struct orion_refused *refused = &incoming->body.refused;
    refused->text[sizeof refused->text - 1] = '\0';
    if (refused->code == ORION_REFUSED_PAGES) { /* this agent does not know the pages: join again */
        if (m->busy >= 0) close(m->busy), close(m->record);
        m->busy = m->record = -1;
    } else if (refused->code != ORION_REFUSED_RATE) {
        unmanaged(m, ORION_SAY_REFUSED, refused->text);
    }
    uint64_t retry = refused->retry_ms < 60000 ? refused->retry_ms * ORION_MILLISECOND : 60 * ORION_SECOND;
    disconnect(m, now + (retry > ORION_MILLISECOND ? retry : ORION_MILLISECOND));
}

static void handle_neighbours(struct orion_membership *m, struct incoming *incoming)
{
    const struct orion_neighbours *message = &incoming->body.neighbours;
    size_t fixed = offsetof(struct orion_neighbours, places);
    if (!long_enough(incoming, fixed) || message->count > ORION_FDS_MAX ||
        !long_enough(incoming, fixed + message->count * sizeof message->places[0]))
        return;
    bool gone = message->head.type == ORION_GONE;
    for (uint32_t i = 0; i < message->count; i++) {
        if (gone) orion_gpu_drop_neighbour(m->gpu, message->places[i].client_index, message->places[i].generation);
        else if (i < incoming->fd_count)
            orion_gpu_map_neighbour(m->gpu, message->places[i].client_index, message->places[i].generation, incoming->fds[i]);
    }
    if (gone || !m->welcome) return;
    /* An agent that gives new pages does not know which hp clients an earlier agent named, and nobody writes their pages any more. */
    if (m->is_new) orion_gpu_drop_other_neighbours(m->gpu, message->places, message->count);
    m->is_new = false;
    managed(m, ORION_ROLE_BE);
}

static void handle_job(struct orion_membership *m, struct incoming *incoming)
{
    if (!long_enough(incoming, sizeof incoming->body.job) || incoming->fd_count != 1) return;
    if (orion_gpu_map_job(m->gpu, incoming->body.job.rank, incoming->fds[0]) == 0) keep(&m->job, &incoming->fds[0]);
}

static void handle_knowledge(struct orion_membership *m, struct incoming *incoming)
{
    struct orion_durations *durations = orion_durations(m->process);
    if (incoming->fd_count != 1 || orion_knowledge_receive(durations, incoming->fds[0]) == 0) return;
    atomic_store_explicit(&m->gpu->record->kernels_known, atomic_load(&durations->known), memory_order_relaxed);
}

static void handle(struct orion_membership *m, struct incoming *incoming, uint64_t now)
{
    if (!long_enough(incoming, sizeof incoming->body.head) || incoming->body.head.magic != ORION_MESSAGE_MAGIC) return;
    switch (incoming->body.head.type) {
    case ORION_WELCOME: handle_welcome(m, incoming, now); break;
    case ORION_REFUSED: handle_refused(m, incoming, now); break;
    case ORION_NEIGHBOURS:
    case ORION_GONE: handle_neighbours(m, incoming); break;
    case ORION_JOB: handle_job(m, incoming); break;
    case ORION_KNOWLEDGE: handle_knowledge(m, incoming); break;
    default: break; /* a message type of a newer agent */
    }
}

static ssize_t receive(struct orion_membership *m, struct incoming *incoming)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof incoming->fds)];
    } control;
    struct iovec part = {incoming->body.bytes, sizeof incoming->body.bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    incoming->fd_count = 0;
    ssize_t length = recvmsg(m->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0) return length;
    incoming->length = (size_t)length;
    for (struct cmsghdr *part_of = CMSG_FIRSTHDR(&message); part_of != NULL; part_of = CMSG_NXTHDR(&message, part_of)) {
        if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
        size_t bytes = part_of->cmsg_len - CMSG_LEN(0);
        memcpy(incoming->fds, CMSG_DATA(part_of), bytes);
        incoming->fd_count = (uint32_t)(bytes / sizeof incoming->fds[0]);
    }
    return length;
}

static void handle_messages(struct orion_membership *m, uint64_t now)
{
    struct incoming incoming;
    for (unsigned i = 0; i < MESSAGES_AT_ONCE && m->socket >= 0; i++) {
        ssize_t length = receive(m, &incoming);
        if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (length > 0) handle(m, &incoming, now);
        for (uint32_t j = 0; j < incoming.fd_count; j++)
            if (incoming.fds[j] >= 0) close(incoming.fds[j]);
        if (length <= 0) { /* the agent closed the connection; its last grant stays in force */
            disconnect(m, now + (m->busy >= 0 ? RETRY_AFTER_LOSS_NS : RETRY_WITHOUT_AGENT_NS));
            unmanaged(m, ORION_SAY_NO_AGENT, m->gpu->uuid);
        }
    }
}

void orion_membership_poll(struct orion_membership *m, uint64_t now)
{
    if (m->socket < 0 && now >= m->try_again_ns) try_to_connect(m, now);
    if (m->socket < 0) return;
    handle_messages(m, now);
    if (m->socket >= 0 && m->welcome) orion_unknown_report(m->process, m->gpu, m->socket, &m->unknown_reported);
    if (m->socket >= 0 && m->welcome) orion_knowledge_reports_poll(&m->reports, orion_durations(m->process), m->socket, now);
    if (m->socket < 0 || m->welcome || now < m->answer_by_ns) return;
    unmanaged(m, ORION_SAY_NO_AGENT, m->gpu->uuid);
    disconnect(m, now + RETRY_WITHOUT_AGENT_NS);
}

uint64_t orion_membership_due(const struct orion_membership *m, uint64_t now)
{
    uint64_t at = m->socket < 0 ? m->try_again_ns : m->welcome ? m->reports.at_ns : m->answer_by_ns;
    return at == UINT64_MAX ? UINT64_MAX : at > now ? at - now : 0;
}
