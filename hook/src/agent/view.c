#include "agent/view.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "agent/known_limit.h"
#include "memory/memory.h"
#include "orion/join.h"
#include "orion/pages.h"
#include "process/page.h"
#include "process/process.h"
#include "system/system.h"

#define ANSWER_NS (250 * ORION_MILLISECOND) /* as a launch waits for the join */
#define AGAIN_NS ORION_SECOND

struct orion_view_of {
    char uuid[48];                               /* as in a page's header; written before the entry counts */
    _Atomic uint64_t asked_ns;                   /* when a thread last began to ask; 0: none has */
    _Atomic uint32_t ended;                      /* how often a thread has finished to ask; a private futex */
    const struct orion_grant_page *_Atomic page; /* its address never changes; NULL: no agent has shown it */
};
struct orion_views {
    _Atomic uint32_t making, count; /* a spin lock around making an entry; the complete entries */
    _Atomic uint64_t silent_ns;     /* when an agent has last not answered in time, for whichever GPU; 0: never */
    struct orion_view_of of[ORION_GPUS];
};
ORION_PART(views)

static struct orion_view_of *find(struct orion_views *views, const char uuid[48])
{
    for (uint32_t i = 0; i < atomic_load(&views->count); i++)
        if (memcmp(views->of[i].uuid, uuid, sizeof views->of[i].uuid) == 0) return &views->of[i];
    return NULL;
}

static struct orion_view_of *find_or_make(struct orion_views *views, const char uuid[48])
{
    struct orion_view_of *found = find(views, uuid);
    if (found != NULL) return found;
    while (atomic_exchange(&views->making, 1)) orion_pause();
    uint32_t count = atomic_load(&views->count);
    found = find(views, uuid);
    if (found == NULL && count < ORION_GPUS) {
        found = &views->of[count];
        memcpy(found->uuid, uuid, sizeof found->uuid);
        atomic_store(&views->count, count + 1);
    }
    atomic_store(&views->making, 0);
    return found;
}

/* Returns the descriptor of an answer; -1: none came in time. */
static int answer_on(int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct orion_shown shown = {0};
    struct iovec part = {&shown, sizeof shown};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    uint64_t until = orion_now() + ANSWER_NS, now;
    int page = -1;
    while (poll(&answer, 1, 0) == 0 && (now = orion_now()) < until) poll(&answer, 1, (int)((until - now) / ORION_MILLISECOND) + 1);
    if (recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    bool has_page = header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS;
    if (has_page && header->cmsg_len == CMSG_LEN(sizeof page)) memcpy(&page, CMSG_DATA(header), sizeof page);
    if (page < 0 || (shown.head.magic == ORION_MESSAGE_MAGIC && shown.head.type == ORION_SHOWN)) return page;
    close(page);
    return -1;
}

static void map(struct orion_view_of *view, int fd)
{
    void *page = (void *)(uintptr_t)atomic_load(&view->page);
    if (!orion_page_is(fd, ORION_PAGE_GRANT, view->uuid)) return;
    if (page == NULL) page = mmap(NULL, ORION_PAGE_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && orion_page_map_over(page, fd, false) == 0) atomic_store(&view->page, page);
}

/* False: an agent has the question and does not answer in time. */
static bool ask(struct orion_view_of *view)
{
    struct orion_view message = {{ORION_MESSAGE_MAGIC, ORION_VIEW}};
    uint64_t began = orion_now();
    int fd = orion_agent_connect(view->uuid), page = -1;
    if (fd < 0) return true;
    if (send(fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof message) page = answer_on(fd);
    close(fd);
    if (page < 0) return orion_now() - began < ANSWER_NS;
    map(view, page);
    close(page);
    return true;
}

/* A program that looks at all GPUs waits once for an agent that does not answer, where it knows their limits without one. */
static bool is_due(struct orion_views *views, const struct orion_view_of *view, bool is_known, uint64_t now)
{
    uint64_t asked = atomic_load(&view->asked_ns), silent = atomic_load(&views->silent_ns);
    if (is_known && silent != 0 && now - silent < AGAIN_NS) return false;
    return asked == 0 || now - asked >= AGAIN_NS;
}

static void look(struct orion_views *views, struct orion_view_of *view, bool is_known)
{
    uint64_t now = orion_now(), asked = atomic_load(&view->asked_ns);
    if (is_due(views, view, is_known, now) && atomic_compare_exchange_strong(&view->asked_ns, &asked, now)) {
        if (!ask(view)) atomic_store(&views->silent_ns, orion_now());
        atomic_fetch_add(&view->ended, 1);
        orion_futex_wake_all(&view->ended, false);
    } else if (now < asked + ANSWER_NS) { /* only the first time; a thread that asks may be cancelled */
        orion_futex_wait(&view->ended, 0, asked + ANSWER_NS - now, false);
    }
}

static struct orion_room room_in(const struct orion_grant_page *page)
{
    const struct orion_grant *grant = &page->copy[atomic_load_explicit(&page->current, memory_order_acquire) & 1];
    uint64_t limit = grant->memory_limit_bytes, used = (uint64_t)atomic_load(&page->used_mib) << 20;
    return (struct orion_room){
        .limit = limit,
        .left = used < limit ? limit - used : 0,
        .leaving = orion_memory_leaving(page),
        .beyond = grant->unified == ORION_UNIFIED_BEYOND,
    };
}

static struct orion_room find_room(struct orion_process *process, const char uuid[48])
{
    struct orion_view_of *view = find_or_make(orion_views(process), uuid);
    const struct orion_grant_page *page = view == NULL ? NULL : atomic_load(&view->page);
    uint64_t known = page == NULL ? orion_known_limit(uuid) : 0;
    if (view != NULL) {
        look(orion_views(process), view, page != NULL || known != 0);
        page = atomic_load(&view->page);
    }
    return page != NULL ? room_in(page) : (struct orion_room){.limit = known, .left = known};
}

bool orion_view_room(const char *uuid, struct orion_room *room)
{
    char name[48] = {0};
    int kept = errno;
    struct orion_process *process = orion_process_started();
    if (process == NULL || orion_process_has_scheduler(process) || strlen(uuid) >= sizeof name) return false;
    memcpy(name, uuid, strlen(uuid));
    *room = find_room(process, name);
    errno = kept;
    return room->limit != 0;
}
