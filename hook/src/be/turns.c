#include "be/turns.h"

#include "agent/agent_socket.h"
#include "be/state.h"
#include "orion/join.h"
#include "process/plan.h"
#include "system/system.h"

#define PIECE_FADE 8u              /* a long piece is forgotten within about this many shorter ones */
#define WORTH_NS ORION_MILLISECOND /* with less than this left, a turn is not handed back */
#define AGAIN_NS (50 * ORION_MILLISECOND)
#define IDLE_POLL_NS (50 * ORION_MICROSECOND)
/* How long a client is idle before it hands its turn back. To do so costs two changes of contexts, 0.3 ms or more, and the
 * client waits for its next turn. So it shall keep its turn in pauses that are shorter than the most, and hand it back soon in
 * longer ones: a shorter pause makes it more patient at once, a longer one less patient by and by. Whether a pause was long is
 * judged by all of it, not by what came after the client was patient in vain: else patience that was learnt from short pauses
 * would grow with longer ones, until it outlasts them and nothing is learnt any more. */
#define PATIENCE_NS (500 * ORION_MICROSECOND)
#define PATIENCE_LEAST_NS (250 * ORION_MICROSECOND)
#define PATIENCE_MOST_NS (2500 * ORION_MICROSECOND)
#define PATIENCE_FADE 8u
#define FOR_GOOD UINT64_MAX
#define PAGES_PART \
    4u /* memory that moves would come back for the next turn: a client is idle for this part of the time that takes */

void orion_turns_note_piece(struct orion_gpu *gpu, uint64_t expected_ns)
{
    _Atomic uint64_t *piece_ns = &gpu->record->piece_ns;
    uint64_t piece = atomic_load_explicit(piece_ns, memory_order_relaxed);
    piece -= piece / PIECE_FADE;
    atomic_store_explicit(piece_ns, piece > expected_ns ? piece : expected_ns, memory_order_relaxed);
}

/* -- Messages to the agent ------------------------------------------------------------------------------------------- */

static void tell(struct orion_gpu *gpu, enum orion_turn_wish wish)
{
    struct orion_turn message = {.head = {ORION_MESSAGE_MAGIC, ORION_TURN}, .wish = wish};
    if (gpu->client == 0) orion_agent_tell(gpu->uuid, &message, sizeof message);
}

static uint64_t learnt_patience(const struct orion_gpu *gpu)
{
    uint64_t patience = atomic_load_explicit(&orion_be(gpu)->patience_ns, memory_order_relaxed);
    return patience == 0 ? PATIENCE_NS : patience;
}

static void learn_patience(struct orion_gpu *gpu, uint64_t away_ns)
{
    uint64_t patience = learnt_patience(gpu);
    if (away_ns < PATIENCE_MOST_NS - patience) patience *= 2; /* the pause was shorter than the most */
    else patience -= patience > PATIENCE_NS ? patience / 2 : patience / PATIENCE_FADE;
    patience = patience < PATIENCE_LEAST_NS ? PATIENCE_LEAST_NS : patience > PATIENCE_MOST_NS ? PATIENCE_MOST_NS : patience;
    atomic_store_explicit(&orion_be(gpu)->patience_ns, patience, memory_order_relaxed);
}

static void ask(struct orion_gpu *gpu, uint64_t now)
{
    struct orion_be *be = orion_be(gpu);
    uint64_t asked = atomic_load(&be->asked_ns), handed_back = atomic_load(&be->handed_back_ns);
    if (now < asked + AGAIN_NS && handed_back < asked) return;
    if (!atomic_compare_exchange_strong(&be->asked_ns, &asked, now)) return;
    if (handed_back > asked) learn_patience(gpu, now - handed_back);
    tell(gpu, ORION_TURN_WANTED);
}

void orion_turns_sleep(struct orion_gpu *gpu, uint64_t most_ns)
{
    uint64_t now = orion_now();
    if (orion_plan_opens_at(gpu, now) == ORION_NO_TURN) ask(gpu, now);
    orion_plan_sleep(gpu, most_ns);
}

void orion_turns_closed(struct orion_gpu *gpu, uint64_t now)
{
    if (!orion_plan_holds(gpu)) return; /* hp has closed them */
    struct orion_turn_time turn = orion_plan_turn(orion_gpu_grant(gpu), now);
    atomic_store_explicit(&orion_be(gpu)->turn_ended_ns, turn.begin <= now ? turn.end : now, memory_order_relaxed);
}

void orion_turns_opened(struct orion_gpu *gpu, uint64_t now)
{
    struct orion_be *be = orion_be(gpu);
    uint64_t ended = atomic_load_explicit(&be->turn_ended_ns, memory_order_relaxed);
    if (ended > now) atomic_store_explicit(&be->turn_ended_ns, 0, memory_order_relaxed); /* the turn has become longer */
    else if (atomic_load_explicit(&be->resumed_ns, memory_order_relaxed) <= ended)
        atomic_store_explicit(&be->resumed_ns, now, memory_order_relaxed);
}

uint64_t orion_turns_ran_on(const struct orion_gpu *gpu, uint64_t begin, uint64_t end, uint64_t work)
{
    uint64_t ended = atomic_load_explicit(&orion_be(gpu)->turn_ended_ns, memory_order_relaxed);
    uint64_t resumed = atomic_load_explicit(&orion_be(gpu)->resumed_ns, memory_order_relaxed);
    if (ended == 0 || end <= ended) return 0;
    if (resumed > ended && end > resumed) end = resumed; /* from then on the slot has its turn again, or nobody takes turns */
    uint64_t from = begin > ended ? begin : ended, before = from - begin;
    if (end <= from || work <= before) return 0;
    return work - before < end - from ? work - before : end - from;
}

static uint64_t patience_of(const struct orion_gpu *gpu)
{
    uint64_t patience = learnt_patience(gpu);
    uint64_t pages = atomic_load_explicit(&gpu->pages.took_ns, memory_order_relaxed) / PAGES_PART;
    return pages > patience ? pages : patience;
}

/* The turn that an idle client may hand back. The last moments of a turn are not worth it, but the next turn is. */
static struct orion_turn_time turn_to_hand_back(const struct orion_gpu *gpu, uint64_t now)
{
    const struct orion_grant *grant = orion_gpu_grant(gpu);
    if (__builtin_expect(now >= grant->plan_until_ns, 1)) return (struct orion_turn_time){ORION_NO_TURN, ORION_NO_TURN};
    struct orion_turn_time turn = orion_plan_turn(grant, now);
    return turn.begin != ORION_NO_TURN && turn.end - now < WORTH_NS ? orion_plan_turn(grant, turn.end) : turn;
}

/* Whether there is a turn to hand back, and it was not handed back yet. Launches that wait for pages may wait on the CPU, and look like
 * no work. */
static bool may_hand_back(const struct orion_gpu *gpu, uint64_t now)
{
    struct orion_turn_time turn = turn_to_hand_back(gpu, now);
    if (turn.begin == ORION_NO_TURN || orion_plan_awaits_pages(gpu)) return false;
    uint64_t handed_back = atomic_load(&orion_be(gpu)->handed_back_ns);
    return now < turn.begin ? now > handed_back + AGAIN_NS : handed_back < turn.begin;
}

static uint64_t until_next_turn(const struct orion_gpu *gpu, uint64_t now)
{
    struct orion_turn_time turn = turn_to_hand_back(gpu, now);
    if (turn.begin <= now) turn = orion_plan_turn(orion_gpu_grant(gpu), turn.end);
    return turn.begin == ORION_NO_TURN ? FOR_GOOD : turn.begin - now;
}

uint64_t orion_turns_idle(struct orion_gpu *gpu)
{
    struct orion_be *be = orion_be(gpu);
    uint64_t now = orion_now();
    if (!may_hand_back(gpu, now)) return until_next_turn(gpu, now);
    uint64_t until = now + patience_of(gpu);
    for (; now < until; now = orion_now()) {
        orion_sleep_precisely(IDLE_POLL_NS);
        if (atomic_load(&be->in_flight_ns) > 0) return FOR_GOOD;
    }
    if (!may_hand_back(gpu, now)) {
        learn_patience(gpu, FOR_GOOD); /* the turn is over: it was patient in vain */
        return until_next_turn(gpu, now);
    }
    atomic_store(&be->handed_back_ns, now);
    tell(gpu, ORION_TURN_HANDED_BACK);
    return FOR_GOOD;
}
