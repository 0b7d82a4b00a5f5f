#include "agent/credit_request.h"

#include <errno.h>
#include <poll.h>

#include "agent/memory_wish.h"
#include "process/gpu.h"
#include "process/process.h"
#include "system/system.h"

#define PATIENCE_NS (2 * ORION_SECOND) /* in which an agent can be replaced */
#define PAUSE_MS 5
#define TURN_NS \
    (500 * ORION_MILLISECOND) /* longer than a request and the pause: a thread that ended in its turn keeps it no longer */

struct orion_credit_request {
    _Atomic uint64_t turn_ends_ns; /* of the thread that asks; 0: none does. Also names the turn. */
    _Atomic uint64_t refused;      /* bytes of the request that was refused last */
    _Atomic uint32_t refused_number;
    _Atomic uint32_t begun;    /* requests; the last one's number */
    _Atomic uint32_t answered; /* a private futex: grows when a turn ends */
};
struct orion_credit_requests { struct orion_credit_request of[ORION_GPUS]; /* by device */ };
ORION_PART(credit_requests)

static bool take_turn(struct orion_credit_request *request, uint64_t now, uint64_t *turn)
{
    uint64_t before = atomic_load(&request->turn_ends_ns);
    *turn = before > now ? before : now + TURN_NS;
    return before <= now && atomic_compare_exchange_strong(&request->turn_ends_ns, &before, *turn);
}

static void end_turn(struct orion_credit_request *request, uint64_t turn)
{
    atomic_compare_exchange_strong(&request->turn_ends_ns, &turn, 0); /* unless it took so long that another thread has it */
    atomic_fetch_add(&request->answered, 1);
    orion_futex_wake_all(&request->answered, false);
}

static enum orion_credit_answer ask(const struct orion_gpu *gpu, uint64_t bytes, struct orion_credit_request *request)
{
    uint32_t number = atomic_fetch_add(&request->begun, 1) + 1;
    enum orion_credit_answer answer = orion_memory_ask(gpu, ORION_MEMORY, bytes);
    if (answer == ORION_CREDIT_NO) {
        atomic_store(&request->refused, bytes);
        atomic_store(&request->refused_number, number);
    } else if (answer != ORION_CREDIT_YES) {
        poll(NULL, 0, PAUSE_MS); /* in its turn: the others would get the same answer */
    }
    return answer;
}

/* Whether the agent has refused no more than that since the allocation waits. */
static bool was_refused(const struct orion_credit_request *request, uint64_t bytes, uint32_t begun)
{
    uint32_t number = atomic_load(&request->refused_number);
    return (int32_t)(number - begun) > 0 && bytes >= atomic_load(&request->refused);
}

enum orion_credit_answer orion_credit_request(const struct orion_gpu *gpu, uint64_t bytes, struct orion_credit_wait *wait)
{
    struct orion_credit_request *request = &orion_credit_requests(orion_the_process)->of[gpu->device % (CUdevice)ORION_GPUS];
    uint32_t answered = atomic_load(&request->answered);
    uint64_t now = orion_now(), turn;
    if (wait->until == 0) *wait = (struct orion_credit_wait){now + PATIENCE_NS, atomic_load(&request->begun)};
    if (now >= wait->until || was_refused(request, bytes, wait->begun)) return ORION_CREDIT_NO;
    if (!take_turn(request, now, &turn)) {
        orion_futex_wait(&request->answered, answered, (turn < wait->until ? turn : wait->until) - now, false);
        return ORION_CREDIT_LATER;
    }
    int kept = errno;
    enum orion_credit_answer answer = ask(gpu, bytes, request);
    end_turn(request, turn);
    errno = kept;
    return answer;
}
