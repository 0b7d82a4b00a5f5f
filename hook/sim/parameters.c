/* The environment variables ORION_SIM_*. The process that makes the machine reads them once. An invalid value counts as
 * not set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "parameters.h"

static uint64_t number(const char *name, uint64_t otherwise, uint64_t least, uint64_t most)
{
    const char *text = getenv(name);
    char *end = NULL;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    return text && end != text && *end == 0 && value >= least && value <= most ? value : otherwise;
}

static uint64_t bytes(const char *name, uint64_t otherwise)
{
    static const struct {
        const char *unit;
        uint64_t factor;
    } units[] = {{"", 1}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}, {"TiB", UINT64_C(1) << 40}};
    const char *text = getenv(name);
    char *end = NULL;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || !value) return otherwise;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strcasecmp(end, units[i].unit)) return value * units[i].factor;
    return otherwise;
}

/* Read the next number of a list such as "0,1,1". False: the list has ended, or has something else at this
 * place. */
static bool next_number(const char **list, long *value)
{
    char *end;
    if (!*list || !**list) return false;
    *value = strtol(*list, &end, 10);
    bool good = end != *list && (!*end || *end == ',' || *end == '-');
    *list = *end ? end + 1 : end;
    return good;
}

static bool is_gpu(long number) { return number >= 0 && number < (long)SIM_GPUS; }

static void read_mig(struct sim_parameters *parameters)
{
    const char *list = getenv("ORION_SIM_MIG");
    for (long gpu; next_number(&list, &gpu);)
        if (is_gpu(gpu)) parameters->mig |= UINT64_C(1) << gpu;
}

static void read_numa(struct sim_parameters *parameters)
{
    const char *list = getenv("ORION_SIM_NUMA");
    for (size_t gpu = 0; gpu < SIM_GPUS; gpu++) {
        long node;
        parameters->numa[gpu] = next_number(&list, &node) ? node : -1;
    }
}

/* Reads groups such as "0-3". NVLink joins all GPUs of a group. */
static void read_links(struct sim_parameters *parameters)
{
    const char *list = getenv("ORION_SIM_NVLINK");
    for (long first, last; next_number(&list, &first) && next_number(&list, &last);)
        for (long gpu = first; is_gpu(first) && is_gpu(last) && gpu <= last; gpu++)
            for (long other = first; other <= last; other++)
                if (other != gpu) parameters->linked[gpu] |= UINT64_C(1) << other;
}

struct sim_parameters sim_parameters_from_environment(void)
{
    struct sim_parameters parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.gpus = number("ORION_SIM_GPUS", 1, 0, SIM_GPUS);
    parameters.sms = number("ORION_SIM_SMS", 132, 1, SIM_SMS);
    parameters.memory = bytes("ORION_SIM_MEMORY", UINT64_C(80) << 30);
    parameters.context_memory = bytes("ORION_SIM_CONTEXT_MEMORY", 0);
    parameters.slice_ns = number("ORION_SIM_SLICE_US", 2000, 1, 10000000) * 1000;
    parameters.switch_ns = number("ORION_SIM_SWITCH_US", 0, 0, 1000000) * 1000;
    parameters.lock_ns = number("ORION_SIM_LOCK_US", 0, 0, 10000000) * 1000;
    parameters.out_ns = number("ORION_SIM_OUT_MS_PER_GIB", 0, 0, 100000) * 1000000;
    parameters.back_ns = number("ORION_SIM_BACK_MS_PER_GIB", 0, 0, 100000) * 1000000;
    parameters.fault_ns = UINT64_C(1000000000) / number("ORION_SIM_FAULT_GIB_PER_S", 12, 1, 1000);
    parameters.listed_ns = number("ORION_SIM_LISTED_MS", 0, 0, 100000) * 1000000;
    const char *mode = getenv("ORION_SIM_MODE"), *clock = getenv("ORION_SIM_CLOCK"), *seed = getenv("ORION_SIM_SEED");
    parameters.mode = mode && !strcmp(mode, "mps") ? SIM_MPS : SIM_TIMESLICE;
    parameters.virtual_clock = clock && !strcmp(clock, "virtual");
    read_mig(&parameters);
    read_numa(&parameters);
    read_links(&parameters);
    if (seed) snprintf(parameters.seed, sizeof parameters.seed, "%s", seed);
    else gethostname(parameters.seed, sizeof parameters.seed - 1);
    return parameters;
}

void sim_state_folder(char *folder, size_t size)
{
    const char *set = getenv("ORION_SIM_STATE");
    if (set && *set) snprintf(folder, size, "%s", set);
    else snprintf(folder, size, "/dev/shm/orion-sim-%u", (unsigned)getuid());
}

bool sim_may_make(void)
{
    const char *set = getenv("ORION_SIM_MAKE");
    return !set || strcmp(set, "0");
}
