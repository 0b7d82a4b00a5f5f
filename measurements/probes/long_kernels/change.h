/* E: hp copies its input, and meanwhile a kernel of hp's makes the GPU change to hp. */
#ifndef LONG_KERNELS_CHANGE_H
#define LONG_KERNELS_CHANGE_H

#include "slices.h"

static const size_t copies[] = {64u << 10, 64u * 3 * 224 * 224 * 4}; /* a small input; 64 pictures for a ResNet */

/* How long the copy takes on an idle GPU, the median. */
static uint64_t measure_copy(size_t bytes)
{
    double times[20];
    for (int i = 0; i < 20; i++) {
        double begun = now_us();
        must(cuMemcpyHtoDAsync(target, input, bytes, stream), "copy");
        must(cuStreamSynchronize(stream), "synchronise");
        times[i] = now_us() - begun;
    }
    return (uint64_t)median_of(times, 20);
}

static void run_copies(struct form *form, int round)
{
    for (int early = PLAIN; early <= HELD; early++) {
        form->early = (enum early)early;
        for (int k = -1; k < 2; k++)
            for (uint32_t gated = 0; gated < (k < 0 ? 1 : 2); gated++) {
                char fields[256];
                struct situation beside = {k < 0 ? NOTHING : MULTIPLYING, k < 0 ? 0 : long_us[k], gated, 0, NO_REACTION, 0};
                progress("round %d, %zu bytes, %s", round, form->copy, early_name[early]);
                snprintf(fields, sizeof fields, "\"round\": %d, \"copy\": %zu, \"copy_us\": %llu, \"early\": \"%s\"", round, form->copy,
                         (unsigned long long)form->copy_us, early_name[early]);
                run_requests(form, beside, fields);
            }
    }
}

static void early_changes(void)
{
    struct form form;
    pid_t be = start_be();
    prepare_form(&form);
    for (int round = 0; round < (simulated ? 1 : 2); round++)
        for (int c = 0; c < 2; c++) {
            situate((struct situation){.work = NOTHING});
            form.copy = copies[c];
            form.copy_us = measure_copy(copies[c]);
            run_copies(&form, round);
        }
    end_be(be);
}

#endif
