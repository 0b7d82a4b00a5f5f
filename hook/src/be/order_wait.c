#include "be/order_wait.h"

#include "be/gate.h"
#include "be/stop.h"
#include "process/gpu.h"
#include "process/process.h"
#include "process/report.h"

#define POLL_NS (50 * ORION_MICROSECOND)
#define STEP_MOST_NS ORION_GATE_POLL_NS /* a step takes longer only if the thread was stopped or had no CPU */

static bool is_away(const struct orion_process *process) { return atomic_load(&process->errands) & ORION_ERRAND_STAY; }

/* A graph with kernels on several GPUs waits for the hp of each. GPUs of clients that are threads are not those of the process. */
static bool is_held(struct orion_process *process, struct orion_gpu *gpu)
{
    if (orion_stops_hold(process, gpu)) return true;
    if (gpu->client != 0) return false;
    ORION_EACH_GPU(other, process)
        if (atomic_load(&other->role) == ORION_ROLE_BE && orion_gate_closed(other)) return true;
    return false;
}

static void count(struct orion_order_wait *wait, bool held, bool away)
{
    uint64_t now = orion_now(), since = wait->looked_ns == 0 ? 0 : now - wait->looked_ns;
    if (since > STEP_MOST_NS) since = STEP_MOST_NS;
    if (!away && !(held && wait->held)) wait->all_ns += since;
    if (!away && !held && !wait->held) wait->free_ns += since;
    wait->looked_ns = now;
    wait->held = held || away;
}

bool orion_order_waits(struct orion_process *process, struct orion_gpu *gpu, struct orion_order_wait *wait)
{
    if (orion_order_waits_briefly(process, gpu, wait, ORION_ORDER_FREE_NS)) return true;
    orion_say_once(process, ORION_SAY_ORDER);
    return false;
}

bool orion_order_waits_briefly(struct orion_process *process, struct orion_gpu *gpu, struct orion_order_wait *wait,
                               uint64_t free_ns)
{
    bool away = is_away(process);
    count(wait, is_held(process, gpu), away);
    if (wait->free_ns >= free_ns || wait->all_ns >= ORION_ORDER_ALL_NS) return false;
    if (orion_gate_closed(gpu)) orion_gate_sleep(process, gpu, ORION_GATE_POLL_NS);
    else orion_sleep_precisely(away ? ORION_GATE_POLL_NS : POLL_NS);
    return true;
}
