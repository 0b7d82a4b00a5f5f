#include "agent/asking.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>

#include "agent/memory_wish.h"
#include "system/system.h"

#define PAUSE_MS 5
#define TURN_NS \
    (500 * ORION_MILLISECOND) /* longer than a request and the pause: a thread that ended in its turn keeps it no longer */

bool orion_asking_begin(struct orion_asking *asking, uint64_t until, uint64_t *turn)
{
    uint32_t ended = atomic_load(&asking->ended);
    uint64_t now = orion_now(), before = atomic_load(&asking->turn_ends_ns);
    if (now >= until) return false;
    *turn = before > now ? before : now + TURN_NS;
    if (before <= now && atomic_compare_exchange_strong(&asking->turn_ends_ns, &before, *turn)) return true;
    orion_futex_wait(&asking->ended, ended, (*turn < until ? *turn : until) - now, false);
    return false;
}

void orion_asking_end(struct orion_asking *asking, uint64_t turn)
{
    atomic_compare_exchange_strong(&asking->turn_ends_ns, &turn, 0); /* unless it took so long that another thread has it */
    atomic_fetch_add(&asking->ended, 1);
    orion_futex_wake_all(&asking->ended, false);
}

enum orion_credit_answer orion_asking_ask(struct orion_asking *asking, const struct orion_gpu *gpu, enum orion_message_type type,
                                          uint64_t bytes)
{
    int kept = errno;
    enum orion_credit_answer answer = orion_memory_ask(gpu, type, bytes);
    if (answer != ORION_NO_ANSWER) atomic_store(&asking->answered_ns, orion_now());
    if (answer != ORION_CREDIT_YES && answer != ORION_CREDIT_NO) poll(NULL, 0, PAUSE_MS);
    errno = kept;
    return answer;
}
