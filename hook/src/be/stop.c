#include "be/stop.h"

#include <stddef.h>

#include "be/collective.h"
#include "be/gate.h"
#include "be/valve.h"

/* The stops that may claim launches. A new one needs a row here. */
static const struct orion_stop *const stops[] = {&orion_collective_stop};
#define STOPS (sizeof stops / sizeof *stops)

const struct orion_stop *orion_stop_of(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work)
{
    for (size_t i = 0; i < STOPS; i++)
        if (stops[i]->claims(process, gpu, work)) return stops[i];
    return NULL;
}

bool orion_stops_update(struct orion_process *process)
{
    bool again = false;
    for (size_t i = 0; i < STOPS; i++) again |= stops[i]->update(process);
    return again;
}

struct orion_gpu *orion_stops_block(struct orion_process *process, const struct orion_gpu *gpu)
{
    struct orion_gpu *blocked_by = NULL;
    for (size_t i = 0; i < STOPS && blocked_by == NULL; i++) blocked_by = stops[i]->blocks(process, gpu);
    return blocked_by;
}

void orion_stops_open(struct orion_process *process)
{
    orion_valve_stop.open(process);
    for (size_t i = 0; i < STOPS; i++) stops[i]->open(process);
}

struct orion_gpu *orion_stops_would_block(struct orion_process *process, struct orion_gpu *gpu)
{
    if (!orion_valve_runs_ahead(gpu)) return NULL;
    struct orion_gpu *blocked_by = orion_stops_block(process, gpu);
    return blocked_by != NULL ? blocked_by : orion_gate_closed(gpu) ? gpu : NULL;
}
