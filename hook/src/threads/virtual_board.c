#include "threads/virtual_board.h"

#include <sys/mman.h>

#include "policy.h"
#include "process.h"
#include "system.h"
#include "thread.h"
#include "threads/inprocess.h"

/* As the node agent's defaults. */
#define WINDOW_NS (400 * ORION_MICROSECOND)
#define LINGER_FLOOR_NS (50 * ORION_MICROSECOND)
#define LINGER_CEILING_NS (2 * ORION_MILLISECOND)
#define STALL_NS ORION_SECOND
#define LONG_KERNEL_NS (5 * ORION_MILLISECOND)
#define REEF_DEPTH 12u
#define ORION_2024_DURATION_NS (160 * ORION_MICROSECOND)

#define NO_DEVICE (-2) /* until a client has used one */

static void head(struct orion_page_header *header, enum orion_page_kind kind)
{
    header->magic = ORION_PAGE_MAGIC;
    header->layout = ORION_LAYOUT_VERSION;
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
        pages->record[i].place = i;
        atomic_store(&pages->record[i].shares_context, 1);
    }
    scheduler->pages = pages;
    return true;
}

static struct orion_board *make(struct orion_process *process, uint32_t client)
{
    struct orion_client_pages *pages = process->inprocess.pages;
    uint32_t place = atomic_load(&process->board_count);
    if (place >= ORION_BOARDS) return NULL;
    struct orion_board *board = &process->boards[place];
    board->client = client + 1;
    board->device = NO_DEVICE;
    board->policy = &pages->policy;
    board->grant = &pages->grant[client];
    board->busy = &pages->busy[client];
    board->record = &pages->record[client];
    board->neighbours = pages->busy;
    atomic_store(&board->valve.refused, 1);
    atomic_store(&board->sharing, ORION_SHARING_TOGETHER);
    atomic_store(&board->join, ORION_JOIN_MANAGED);
    atomic_store(&board->made_ns, orion_now());
    atomic_store(&process->board_count, place + 1);
    return board;
}

int orion_virtual_boards_make(struct orion_process *process, uint32_t count)
{
    struct orion_inprocess *scheduler = &process->inprocess;
    if (!pages_ready(scheduler)) return -1;
    bool made = true;
    while (atomic_exchange(&process->board_making, 1)) orion_pause();
    for (uint32_t i = 0; i < count && made; i++) {
        if (scheduler->boards[i] == NULL) scheduler->boards[i] = make(process, i);
        made = scheduler->boards[i] != NULL;
    }
    atomic_store(&process->board_making, 0);
    return made ? 0 : -1;
}

/* A reader is not waited for, here as with an agent's pages: one that began two changes ago may meet words of both, each
 * whole. Every field is good by itself, and readers take one at a time. The thread sanitizer sees it only here, where writer
 * and readers are threads of one process. */
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

/* The list is whole before it is counted; readers of the old count meet places that were hp or are. */
static void list_hp(struct orion_board *board, const uint32_t *roles, uint32_t count)
{
    uint32_t listed = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (roles[i] != ORION_ROLE_HP) continue;
        atomic_store(&board->hp_generation[i], 1);
        atomic_store(&board->hp_place[listed++], (uint16_t)i);
    }
    atomic_store(&board->hp_count, listed);
}

static void seat(struct orion_process *process, struct orion_board *board, uint32_t role)
{
    if (atomic_exchange(&board->role, role) == ORION_ROLE_NONE) atomic_fetch_add(&process->managed, 1);
    if (role != ORION_ROLE_HP) return;
    orion_thread_start(process, board); /* nothing if it runs: */
    orion_thread_wake_by(board, 0);
}

void orion_virtual_boards_seat(struct orion_process *process, const uint32_t *roles, uint32_t count)
{
    struct orion_inprocess *scheduler = &process->inprocess;
    uint32_t hp = 0;
    for (uint32_t i = 0; i < count; i++) hp += roles[i] == ORION_ROLE_HP;
    uint32_t be = count - hp;
    uint64_t share = WINDOW_NS / (be > 0 ? be : 1);
    for (uint32_t i = 0; i < count; i++) {
        const struct orion_grant grant = {.role = roles[i], .window_share_ns = share};
        publish_grant(&scheduler->pages->grant[i], &grant);
        list_hp(scheduler->boards[i], roles, count);
    }
    atomic_store(&scheduler->pages->policy.hp_clients, hp);
    atomic_store(&scheduler->pages->policy.be_clients, be);
    for (uint32_t i = 0; i < count; i++) seat(process, scheduler->boards[i], roles[i]);
}

void orion_virtual_boards_set_policy(struct orion_process *process, uint32_t kind, uint32_t max_slowdown_milli)
{
    struct orion_policy_page *page = &process->inprocess.pages->policy;
    uint32_t now = atomic_load(&page->current) & 1;
    const struct orion_policy policy = {
        .sequence = page->copy[now].sequence + 1,
        .kind = kind,
        .window_ns = WINDOW_NS,
        .linger_floor_ns = LINGER_FLOOR_NS,
        .linger_ceiling_ns = LINGER_CEILING_NS,
        .stall_ns = STALL_NS,
        .max_slowdown_milli = max_slowdown_milli,
        .sharing_cost_milli = 1000,
        .long_kernel_ns = LONG_KERNEL_NS,
        .reef_depth = REEF_DEPTH,
        .orion_2024_duration_ns = ORION_2024_DURATION_NS,
    };
    write_words(&page->copy[!now], &policy, sizeof policy);
    atomic_store_explicit(&page->current, !now, memory_order_release);
}

void orion_virtual_boards_leave(struct orion_process *process)
{
    struct orion_inprocess *scheduler = &process->inprocess;
    atomic_store(&scheduler->pages->policy.hp_clients, 0);
    atomic_store(&scheduler->pages->policy.be_clients, 0);
    for (uint32_t i = 0; i < ORION_CLIENTS_MOST; i++) {
        struct orion_board *board = scheduler->boards[i];
        if (board == NULL) continue;
        if (atomic_exchange(&board->role, ORION_ROLE_NONE) != ORION_ROLE_NONE) atomic_fetch_sub(&process->managed, 1);
        atomic_store(&board->hp_count, 0);
        atomic_store(&board->in_flight_ns, 0);
        atomic_store(&board->busy->state, ORION_IDLE);
        orion_futex_wake_all(&board->busy->state, true);
    }
}
