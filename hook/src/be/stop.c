#include "be/stop.h"

#include <stddef.h>

#include "be/collective.h"
#include "be/gate.h"
#include "be/valve.h"
#include "system/system.h"

#define PEER_POLL_NS (200 * ORION_MICROSECOND) /* nothing wakes a thread that waits for the hp of a peer's GPU */

/* The stops that may claim launches. A new one needs a row here. */
static const struct orion_stop *const stops[] = {&orion_collective_stop};
#define STOPS (sizeof stops / sizeof *stops)

const struct orion_stop *orion_stop_of(struct orion_process *process, struct orion_stream_record *stream_record,
                                       struct orion_work *work)
{
    for (size_t i = 0; i < STOPS; i++)
        if (stops[i]->claims(process, stream_record, work)) return stops[i];
    return NULL;
}

bool orion_stops_update(struct orion_process *process)
{
    bool again = false;
    for (size_t i = 0; i < STOPS; i++) again |= stops[i]->update(process);
    return again;
}

struct orion_gpu *orion_stops_block(struct orion_process *process, struct orion_gpu *gpu)
{
    struct orion_gpu *blocked_by = NULL;
    for (size_t i = 0; i < STOPS && blocked_by == NULL; i++) blocked_by = stops[i]->blocks(process, gpu);
    return blocked_by;
}

bool orion_stops_hold(struct orion_process *process, struct orion_gpu *gpu)
{
    return orion_gate_closed(gpu) || orion_stops_block(process, gpu) != NULL;
}

void orion_stops_open(struct orion_process *process)
{
    orion_valve_stop.open(process);
    for (size_t i = 0; i < STOPS; i++) stops[i]->open(process);
}

void orion_stops_sleep(struct orion_process *process, struct orion_gpu *gpu, uint64_t most_ns)
{
    if (orion_gate_closed(gpu)) orion_gate_sleep(process, gpu, most_ns);
    else {
        orion_sleep_precisely(most_ns < PEER_POLL_NS ? most_ns : PEER_POLL_NS);
        orion_stops_update(process);
    }
}

struct orion_gpu *orion_stops_would_block(struct orion_process *process, struct orion_gpu *gpu)
{
    if (!orion_valve_runs_ahead(gpu)) return NULL;
    struct orion_gpu *blocked_by = orion_stops_block(process, gpu);
    return blocked_by != NULL ? blocked_by : orion_gate_closed(gpu) ? gpu : NULL;
}
