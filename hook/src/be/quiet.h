/* Quiet: calls of the driver that wait for all earlier work of their context.
 *
 * The driver waits so where it loads code, and where it gives kernels more local memory. While it waits, it keeps the context
 * on the GPU for whole time slices. If a stream of the context is behind the closed valve, this lasts until the valve opens, and
 * hp's requests take nearly twice as long (seen on an H200: 7.9 ms instead of 4.0; measurements/probes/blocked_calls.c).
 * Programs load code when they start, and often later: for shapes that are new to a library.
 *
 * So such a call first waits until no work in flight can be held. From then on, until the call has returned, launches of other
 * threads are held on the CPU and not behind the valve. A kernel's first launch is such a call, too: the driver loads code lazily
 * (admission.c).
 *
 * The wait ends after the time that all work in flight can take, not counting the time for which the valve is closed: work in
 * flight may itself depend on what this thread does next. Other threads may always have work in flight. */
#ifndef ORION_QUIET_H
#define ORION_QUIET_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"

struct orion_gpu;
struct orion_stream_record;

/* Around the driver's call. */
struct orion_quiet {
    struct orion_gpu *gpu; /* that of the current context, if its work may be held; else NULL */
    uint64_t lookup;       /* what a look-up has loaded if it succeeds; 0: nothing that it has not loaded before */
};
/* handle: of a look-up, which loads code the first time only; NULL: the call is none. Libraries repeat look-ups: PyTorch asks for the
 * function of a kernel at every eighth launch of some models. name: what is looked up; NULL: the handle alone says it.
 * owner: what the handle belongs to. After a module was unloaded, what libraries have loaded is still there. */
enum orion_code_owner { ORION_CODE_OF_MODULE = 0, ORION_CODE_OF_LIBRARY = 1 };
void orion_quiet_begin(struct orion_quiet *quiet, enum orion_code_owner owner, const void *handle, const char *name);
void orion_quiet_end(const struct orion_quiet *quiet, CUresult result);

/* For a launch of a library's kernel: whether an earlier launch or look-up has loaded its code. The second function notes that this
 * one does. */
bool orion_quiet_has_loaded(struct orion_process *process, const struct orion_gpu *gpu, const void *kernel);
void orion_quiet_loads(struct orion_process *process, const struct orion_gpu *gpu, const void *kernel);

/* What look-ups and first launches have loaded: hashes of handle, name, GPU, and the epoch of kernels.h for what may be unloaded.
 * One may replace another; then the other's next look-up counts as its first. */
#define ORION_LOOKUPS 4096u /* a power of two */
struct orion_lookups { _Atomic uint64_t loaded[ORION_LOOKUPS]; };
ORION_PART(lookups)

/* Whether be's work on the GPU may be held behind the valve, so that such a call must wait. */
bool orion_quiet_matters(const struct orion_process *process, const struct orion_gpu *gpu);
/* Whether a thread is in such a call, or waits for one. */
bool orion_quiet_is_wanted(const struct orion_gpu *gpu);
/* The wait, for a caller that knows that it matters. */
void orion_quiet_wait(struct orion_process *process, struct orion_stream_record *stream_record);

#endif
