#include "threads/virtual_gpu.h"

#include <sys/mman.h>

#include "agent/thread.h"
#include "be/partition.h"
#include "be/state.h"
#include "process/notifier.h"
#include "process/policy.h"
#include "process/process.h"
#include "system/lock.h"
#include "system/system.h"
#include "threads/inprocess.h"

#define NO_DEVICE (-2) /* until a client has used a device */

static void head(struct orion_page_header *header, enum orion_page_kind kind)
{
    header->magic = ORION_PAGE_MAGIC;
    header->layout = ORION_LAYOUT_NEWEST;
    header->kind = kind;
}

static bool pages_ready(struct orion_inprocess *scheduler)
{
    if (scheduler->pages != NULL) return true;
    struct orion_client_pages *pages =
        mmap(NULL, sizeof *pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return false;
    madvise(pages, sizeof *pages, MADV_DONTFORK);
    head(&pages->policy.header, ORION_PAGE_POLICY);
    for (uint32_t i = 0; i < ORION_CLIENTS_MOST; i++) {
        head(&pages->grant[i].header, ORION_PAGE_GRANT);
        head(&pages->busy[i].header, ORION_PAGE_BUSY);
        head(&pages->record[i].header, ORION_PAGE_RECORD);
        pages->record[i].client_index = i;
        atomic_store(&pages->record[i].shares_context, 1);
    }
    scheduler->pages = pages;
    return true;
}

static struct orion_gpu *make(struct orion_process *process, uint32_t client)
{
    struct orion_client_pages *pages = orion_inprocess(process)->pages;
    uint32_t index = atomic_load(&process->gpu_count);
    if (index >= ORION_GPUS) return NULL;
    struct orion_gpu *gpu = &process->gpus[index];
    gpu->client = client + 1;
    gpu->device = NO_DEVICE;
    gpu->policy = &pages->policy;
    gpu->grant = &pages->grant[client];
    gpu->busy = &pages->busy[client];
    gpu->record = &pages->record[client];
    gpu->neighbours = pages->busy;
    gpu->page_step = sizeof *pages->busy;
    atomic_store(&orion_be(gpu)->valve.refused, 1);
    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
    atomic_store(&gpu->join, ORION_JOIN_MANAGED);
    atomic_store(&gpu->made_ns, orion_now());
    atomic_store(&process->gpu_count, index + 1);
    return gpu;
}

int orion_virtual_gpus_make(struct orion_process *process, uint32_t count)
{
    struct orion_inprocess *scheduler = orion_inprocess(process);
    if (!pages_ready(scheduler)) return -1;
    bool made = true;
    orion_lock(&process->gpu_making);
    for (uint32_t i = 0; i < count && made; i++) {
        if (scheduler->gpus[i] == NULL) scheduler->gpus[i] = make(process, i);
        made = scheduler->gpus[i] != NULL;
    }
    orion_unlock(&process->gpu_making);
    return made ? 0 : -1;
}

/* The writer does not wait for readers. An agent that writes pages does not wait for them either. So a reader that
 * began two changes ago may read words of both copies. That is harmless: each word is complete, each field is valid by
 * itself, and readers use one field at a time. The thread sanitizer reports this race only here, where writer and
 * readers are threads of one process. */
typedef uint64_t __attribute__((may_alias)) word;

__attribute__((no_sanitize("thread"))) static void write_words(void *to, const void *from, size_t bytes)
{
    volatile word *words = to;
    const word *given = from;
    for (size_t i = 0; i < bytes / sizeof *given; i++) words[i] = given[i];
}

static void publish_grant(struct orion_grant_page *page, const struct orion_grant *grant)
{
    uint32_t next = !(atomic_load(&page->current) & 1);
    write_words(&page->copy[next], grant, sizeof *grant);
    atomic_store_explicit(&page->current, next, memory_order_release);
}

/* Writes the list before the count. A reader with the old count may see a client that was hp and no longer is. */
static void list_hp(struct orion_gpu *gpu, const uint32_t *roles, uint32_t count)
{
    uint32_t listed = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (roles[i] != ORION_ROLE_HP) continue;
        atomic_store(&gpu->hp_generation[i], 1);
        atomic_store(&gpu->hp_client_index[listed++], (uint16_t)i);
    }
    atomic_store(&gpu->hp_count, listed);
}

static void join(struct orion_process *process, struct orion_gpu *gpu, uint32_t role)
{
    if (atomic_exchange(&gpu->role, role) == ORION_ROLE_NONE) atomic_fetch_add(&process->managed, 1);
    if (role != ORION_ROLE_HP) return;
    orion_thread_start(process, gpu); /* does nothing if the thread runs; then the next line wakes the thread */
    orion_thread_wake_by(gpu, 0);
}

void orion_virtual_gpus_join(struct orion_process *process, const uint32_t *roles, uint32_t count)
{
    struct orion_inprocess *scheduler = orion_inprocess(process);
    uint32_t hp = 0;
    for (uint32_t i = 0; i < count; i++) hp += roles[i] == ORION_ROLE_HP;
    uint32_t be = count - hp;
    uint64_t share = orion_policy_default().window_ns / (be > 0 ? be : 1);
    for (uint32_t i = 0; i < count; i++) {
        const struct orion_grant grant = {.role = roles[i], .window_share_ns = share};
        publish_grant(&scheduler->pages->grant[i], &grant);
        list_hp(scheduler->gpus[i], roles, count);
    }
    atomic_store(&scheduler->pages->policy.hp_clients, hp);
    atomic_store(&scheduler->pages->policy.be_clients, be);
    for (uint32_t i = 0; i < count; i++) join(process, scheduler->gpus[i], roles[i]);
}

void orion_virtual_gpus_set_policy(struct orion_process *process, uint32_t kind, uint32_t max_slowdown_milli)
{
    struct orion_policy_page *page = &orion_inprocess(process)->pages->policy;
    uint32_t now = atomic_load(&page->current) & 1;
    struct orion_policy policy = orion_policy_default();
    policy.sequence = page->copy[now].sequence + 1;
    policy.kind = kind;
    policy.max_slowdown_milli = max_slowdown_milli;
    write_words(&page->copy[!now], &policy, sizeof policy);
    atomic_store_explicit(&page->current, !now, memory_order_release);
}

void orion_virtual_gpus_leave(struct orion_process *process)
{
    struct orion_inprocess *scheduler = orion_inprocess(process);
    atomic_store(&scheduler->pages->policy.hp_clients, 0);
    atomic_store(&scheduler->pages->policy.be_clients, 0);
    for (uint32_t i = 0; i < ORION_CLIENTS_MOST; i++) {
        struct orion_gpu *gpu = scheduler->gpus[i];
        if (gpu == NULL) continue;
        if (atomic_exchange(&gpu->role, ORION_ROLE_NONE) != ORION_ROLE_NONE) atomic_fetch_sub(&process->managed, 1);
        if (orion_be(gpu)->partition.count > 0) { /* the next scheduler may be one of another GPU */
            orion_partition_wait(gpu);
            orion_partition_end(process, gpu);
        }
        atomic_store(&gpu->hp_count, 0);
        atomic_store(&orion_be(gpu)->in_flight_ns, 0);
        atomic_store(&gpu->busy->state, ORION_IDLE);
        orion_futex_wake_all(&gpu->busy->state, true);
    }
}
