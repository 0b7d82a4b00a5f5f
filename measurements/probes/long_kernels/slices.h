/* T: time slices of the processes' own channel groups. P: be takes its groups off the GPU when hp arrives. */
#ifndef LONG_KERNELS_SLICES_H
#define LONG_KERNELS_SLICES_H

#include "requests.h"

#define GRAPH_KERNELS 20
#define GRAPH_KERNEL_US 50
static const uint32_t long_us[] = {1600, 50000}; /* a GEMM of 8192; a very long kernel */

struct slices { const char *name; uint32_t be_us, hp_us; }; /* 0: CUDA's */
static const struct slices settings[] = {{"CUDA's", 0, 0},         {"be 1000", 1000, 0},         {"be 500", 500, 0},
                                         {"be 200", 200, 0},       {"hp 10000", 0, 10000},       {"be 500, hp 10000", 500, 10000},
                                         {"be 200, hp 10000", 200, 10000}, {"be 50, hp 10000", 50, 10000}};

static void run_setting(const struct form *form, const struct slices *setting, enum reaction reaction, uint64_t usual_us, int round)
{
    static const char *const reaction_name[] = {"nothing", "preempts", "stops"};
    uint32_t status = set_slice(setting->hp_us ? setting->hp_us : usual_us);
    for (int k = 0; k < 2; k++)
        for (uint32_t gated = 0; gated < 2; gated++) {
            char fields[256];
            struct situation beside = {MULTIPLYING, long_us[k], gated, setting->be_us, reaction, 0};
            progress("%s, be %s, kernels of %u us", setting->name, reaction_name[reaction], long_us[k]);
            snprintf(fields, sizeof fields, "\"round\": %d, \"slices\": \"%s\", \"be_reaction\": \"%s\", \"hp_status\": %u", round,
                     setting->name, reaction_name[reaction], status);
            run_requests(form, beside, fields);
        }
}

static void run_alone(const struct form *form, int round)
{
    char fields[64];
    snprintf(fields, sizeof fields, "\"round\": %d, \"slices\": \"alone\"", round);
    run_requests(form, (struct situation){.work = NOTHING}, fields);
}

/* What a short slice costs be while hp is idle: be's kernels in half a second. */
static void be_alone(uint32_t slice_us)
{
    situate((struct situation){MULTIPLYING, 1600, 0, slice_us, NO_REACTION, 0});
    usleep(simulated ? 5000 : 100000);
    double begun = now_us();
    uint32_t done = get(BE_DONE);
    usleep(simulated ? 20000 : 500000);
    emit("\"what\": \"be beside an idle hp\", \"slice_us\": %u, \"kernels_per_s\": %.2f", slice_us,
         (get(BE_DONE) - done) / ((now_us() - begun) / 1e6));
}

/* The criterion: no compute group was seen, or the driver refuses to set its slice. Returns whether to go on. */
static bool slices_can_be_set(uint64_t usual_us)
{
    int seen = compute_groups();
    uint32_t status = seen ? set_slice(usual_us) : 0;
    emit("\"what\": \"criterion\", \"calls_seen\": %d, \"compute_groups\": %d, \"usual_slice_us\": %llu, \"status\": %u, \"goes_on\": %s", calls_seen, seen,
         (unsigned long long)usual_us, status, seen && !status ? "true" : "false");
    return seen && !status;
}

static void prepare_form(struct form *form)
{
    prepare_requests();
    *form = (struct form){graph_of_kernels(GRAPH_KERNELS, GRAPH_KERNEL_US), 0, PLAIN, 0};
    print_groups("hp");
}

static void time_slices_of_groups(void)
{
    struct form form;
    pid_t be = start_be();
    prepare_form(&form);
    uint64_t usual_us = usual_slice_us();
    run_alone(&form, 0);
    bool goes_on = slices_can_be_set(usual_us);
    for (int round = 0; round < (simulated ? 1 : 2); round++)
        for (size_t i = 0; i < (goes_on ? sizeof settings / sizeof settings[0] : round ? 0 : 1); i++)
            run_setting(&form, &settings[i], NO_REACTION, usual_us, round);
    if (goes_on) be_alone(0), be_alone(500), be_alone(200), be_alone(50), be_alone(0);
    set_slice(usual_us);
    run_alone(&form, 1);
    uint32_t status = goes_on ? set_interleave(2) : 0;
    emit("\"what\": \"interleave level high\", \"status\": %u, \"tried\": %s", status, goes_on ? "true" : "false");
    if (goes_on && !status) run_setting(&form, &(struct slices){"hp often", 0, 0}, NO_REACTION, usual_us, 0);
    end_be(be);
}

static void react_to_arrival(enum reaction reaction)
{
    struct form form;
    pid_t be = start_be();
    prepare_form(&form);
    uint64_t usual_us = usual_slice_us();
    run_alone(&form, 0);
    if (compute_groups()) {
        run_setting(&form, &settings[0], reaction, usual_us, 0);
        run_setting(&form, &(struct slices){"be 200, hp 10000", 200, 10000}, reaction, usual_us, 0);
    } else
        emit("\"what\": \"criterion\", \"compute_groups\": 0, \"goes_on\": false");
    end_be(be);
}

static void preemptions(void) { react_to_arrival(PREEMPTS); }
static void stops(void) { react_to_arrival(STOPS); }

#endif
