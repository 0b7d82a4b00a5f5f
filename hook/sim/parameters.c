/* ORION_SIM_*: read once, by whoever makes the machine. A value that means nothing counts as not set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "parameters.h"

static uint64_t number(const char *name, uint64_t otherwise, uint64_t least, uint64_t most) {
    const char *text = getenv(name);
    char *end = NULL;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    return text && end != text && *end == 0 && value >= least && value <= most ? value : otherwise;
}

static uint64_t bytes(const char *name, uint64_t otherwise) {
    static const struct { const char *unit; uint64_t factor; } units[] = {
        {"", 1}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}, {"TiB", UINT64_C(1) << 40}};
    const char *text = getenv(name);
    char *end = NULL;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || !value)
        return otherwise;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strcasecmp(end, units[i].unit))
            return value * units[i].factor;
    return otherwise;
}

struct sim_parameters sim_parameters_from_environment(void) {
    struct sim_parameters parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.gpus = number("ORION_SIM_GPUS", 1, 0, SIM_GPUS);
    parameters.sms = number("ORION_SIM_SMS", 132, 1, SIM_SMS);
    parameters.memory = bytes("ORION_SIM_MEMORY", UINT64_C(80) << 30);
    parameters.slice_ns = number("ORION_SIM_SLICE_US", 2000, 1, 10000000) * 1000;
    const char *mode = getenv("ORION_SIM_MODE"), *clock = getenv("ORION_SIM_CLOCK"), *seed = getenv("ORION_SIM_SEED");
    parameters.mode = mode && !strcmp(mode, "mps") ? SIM_MPS : SIM_TIMESLICE;
    parameters.virtual_clock = clock && !strcmp(clock, "virtual");
    if (seed)
        snprintf(parameters.seed, sizeof parameters.seed, "%s", seed);
    else
        gethostname(parameters.seed, sizeof parameters.seed - 1);
    return parameters;
}

void sim_state_folder(char *folder, size_t size) {
    const char *set = getenv("ORION_SIM_STATE");
    if (set && *set)
        snprintf(folder, size, "%s", set);
    else
        snprintf(folder, size, "/dev/shm/orion-sim-%u", (unsigned)getuid());
}
