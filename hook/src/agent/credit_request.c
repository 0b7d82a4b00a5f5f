#include "agent/credit_request.h"

#include "agent/asking.h"
#include "agent/memory_wish.h"
#include "process/gpu.h"
#include "process/process.h"
#include "system/system.h"

#define FIRST_PATIENCE_NS (ORION_SECOND / 2) /* the process may have credit, and the agent may be away */

struct orion_credit_request {
    struct orion_asking asking;
    _Atomic uint64_t refused; /* bytes of the request that was refused last */
    _Atomic uint32_t refused_number;
    _Atomic uint32_t begun; /* requests; the last one's number */
    _Atomic uint32_t first; /* 1: a thread has made the first request */
};
struct orion_credit_requests { struct orion_credit_request of[ORION_GPUS]; /* by device */ };
ORION_PART(credit_requests)

static enum orion_credit_answer ask(const struct orion_gpu *gpu, uint64_t bytes, struct orion_credit_request *request)
{
    uint32_t number = atomic_fetch_add(&request->begun, 1) + 1;
    enum orion_credit_answer answer = orion_asking_ask(&request->asking, gpu, ORION_MEMORY, bytes);
    if (answer == ORION_CREDIT_NO) {
        atomic_store(&request->refused, bytes);
        atomic_store(&request->refused_number, number);
    }
    return answer;
}

/* Whether the agent has refused no more than that since the allocation waits. */
static bool was_refused(const struct orion_credit_request *request, uint64_t bytes, uint32_t begun)
{
    uint32_t number = atomic_load(&request->refused_number);
    return (int32_t)(number - begun) > 0 && bytes >= atomic_load(&request->refused);
}

/* Among many threads one may never have had its turn in all that time: then it asks once without one. */
enum orion_credit_answer orion_credit_request(const struct orion_gpu *gpu, uint64_t bytes, struct orion_credit_wait *wait)
{
    struct orion_credit_request *request = &orion_credit_requests(orion_the_process)->of[gpu->device % (CUdevice)ORION_GPUS];
    uint64_t now = orion_now(), turn = 0;
    if (wait->until == 0) *wait = (struct orion_credit_wait){now + ORION_ASKING_PATIENCE_NS, atomic_load(&request->begun), false};
    if (was_refused(request, bytes, wait->begun)) return ORION_CREDIT_NO;
    if (now >= wait->until && wait->has_asked) return ORION_CREDIT_NO;
    if (now < wait->until && !orion_asking_begin(&request->asking, wait->until, &turn)) return ORION_CREDIT_LATER;
    wait->has_asked = true;
    enum orion_credit_answer answer = ask(gpu, bytes, request);
    if (turn != 0) orion_asking_end(&request->asking, turn);
    return answer;
}

void orion_credit_first(const struct orion_gpu *gpu)
{
    struct orion_credit_request *request = &orion_credit_requests(orion_the_process)->of[gpu->device % (CUdevice)ORION_GPUS];
    if (atomic_load_explicit(&request->first, memory_order_relaxed) != 0 || atomic_exchange(&request->first, 1) != 0) return;
    struct orion_credit_wait wait = {orion_now() + FIRST_PATIENCE_NS, atomic_load(&request->begun), true};
    while (orion_credit_request(gpu, 1, &wait) == ORION_CREDIT_LATER) {}
}
