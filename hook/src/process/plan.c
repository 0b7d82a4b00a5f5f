#include "process/plan.h"

#include "system/system.h"

#define PAGES_POLL_NS (200 * ORION_MICROSECOND) /* nobody wakes those who wait for pages */
#define EARLIEST_CLOSE_PART 4u                  /* however long the pieces are, the slot may launch for this part of a turn */
#define SHORT_NS (500 * ORION_MICROSECOND)
#define HASH 0x9e3779b97f4a7c15u

/* How long before a turn's end the slot stops: half a piece on average. If it were half a piece in each turn, short pieces
 * would end too early in all turns of a length, or too late in all. So the time differs from turn to turn, by a quarter of a
 * piece to either side. With longer pieces that would cost more than it is worth. */
static uint64_t stops_before_end(uint64_t piece, uint64_t begin)
{
    if (piece > SHORT_NS) return piece / 2;
    uint64_t random = begin * HASH >> 56; /* 0 to 255, the same for all threads in this turn */
    return piece / 4 + piece * random / 512;
}

struct orion_turn_time orion_plan_turn(const struct orion_grant *grant, uint64_t now)
{
    if (now < grant->turn_end_ns) return (struct orion_turn_time){grant->turn_begin_ns, grant->turn_end_ns};
    uint64_t begin = grant->next_begin_ns, end = grant->next_end_ns, cycle = grant->cycle_ns;
    if (end <= begin || cycle == 0) return (struct orion_turn_time){ORION_NO_TURN, ORION_NO_TURN};
    uint64_t past = now < end ? 0 : ((now - end) / cycle + 1) * cycle;
    return (struct orion_turn_time){begin + past, end + past};
}

/* Until when launches of a turn that has begun wait for its pages, at most. */
static uint64_t pages_come_by(const struct orion_gpu *gpu, const struct orion_grant *grant, const struct orion_turn_time *turn)
{
    if (__builtin_expect(!orion_pages_move(grant, turn), 1) || atomic_load(&gpu->pages.move) == 0) return turn->begin;
    if (atomic_load(&gpu->pages.turn_ns) == turn->begin) return turn->begin;
    return turn->begin + ORION_PAGES_PART(turn->end - turn->begin);
}

bool orion_plan_awaits_pages(const struct orion_gpu *gpu)
{
    const struct orion_grant *grant = orion_gpu_grant(gpu);
    uint64_t now = orion_now();
    struct orion_turn_time turn = orion_plan_turn(grant, now);
    return now < grant->plan_until_ns && turn.begin <= now && now < pages_come_by(gpu, grant, &turn);
}

bool orion_plan_had_pages(const struct orion_gpu *gpu, uint64_t launched_ns)
{
    const struct orion_grant *grant = orion_gpu_grant(gpu);
    uint64_t now = orion_now();
    struct orion_turn_time turn = orion_plan_turn(grant, now);
    if (!orion_pages_move(grant, &turn) || atomic_load(&gpu->pages.move) == 0 || now >= grant->plan_until_ns) return true;
    return atomic_load(&gpu->pages.turn_ns) == turn.begin && launched_ns >= turn.begin &&
           launched_ns >= atomic_load(&gpu->pages.came_ns);
}

uint64_t orion_plan_opens_at(const struct orion_gpu *gpu, uint64_t now)
{
    const struct orion_grant *grant = orion_gpu_grant(gpu);
    if (now >= grant->plan_until_ns) return now;
    struct orion_turn_time turn = orion_plan_turn(grant, now);
    if (now < turn.begin) return turn.begin;
    uint64_t pages = pages_come_by(gpu, grant, &turn);
    if (now < pages) return pages;
    if (turn.end >= grant->plan_until_ns) return now; /* a turn that lasts */
    struct orion_turn_time next = orion_plan_turn(grant, turn.end);
    uint64_t piece = atomic_load_explicit(&gpu->record->piece_ns, memory_order_relaxed);
    uint64_t before_end = stops_before_end(piece, turn.begin);
    uint64_t most = turn.end - turn.begin;
    most -= most / EARLIEST_CLOSE_PART;
    if (next.begin <= turn.end || now < turn.end - (before_end < most ? before_end : most)) return now;
    return next.begin;
}

bool orion_plan_holds(const struct orion_gpu *gpu)
{
    if (!orion_plan_exists(gpu)) return false;
    uint64_t now = orion_now();
    return orion_plan_opens_at(gpu, now) > now;
}

void orion_plan_sleep(const struct orion_gpu *gpu, uint64_t most_ns)
{
    const struct orion_grant_page *page = gpu->grant;
    /* The number is read first: if the plan changes after this, the futex does not sleep. */
    uint32_t number = atomic_load_explicit(&page->plan, memory_order_acquire);
    uint64_t now = orion_now(), opens = orion_plan_opens_at(gpu, now);
    if (opens <= now) return;
    uint64_t until = orion_gpu_grant(gpu)->plan_until_ns;
    if (opens > until) opens = until;
    if (most_ns > PAGES_POLL_NS && orion_plan_awaits_pages(gpu)) most_ns = PAGES_POLL_NS;
    if (opens > now) orion_futex_wait(&page->plan, number, opens - now < most_ns ? opens - now : most_ns, true);
}
