#include "be/graph_pieces.h"

#include "be/event_words.h"
#include "be/gate.h"
#include "be/graph_cut.h"
#include "be/graph_follow.h"
#include "be/graph_lengths.h"
#include "be/graph_order.h"
#include "be/window.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "learning/graphs.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/report.h"
#include "streams/capture.h"
#include "streams/stream_records.h"

/* Each part of a cut is made from a clone of the whole piece, so a cut takes time for parts times nodes. A long graph is
 * cut in several launches. More pieces would replace the records of other graphs (learning/graphs.h). */
#define CUT_NODES_MOST (1u << 16)
#define PIECES_MOST 1024u

/* -- Cutting --------------------------------------------------------------------------------------------------------- */

static bool prepare(struct orion_process *process, struct orion_graph_copy *copy, uint64_t whole_ns, uint64_t limit);

/* Into how many parts a cut divides a piece now. 1: it cannot be cut into parts. */
static uint32_t parts_of(const struct orion_graph_copy *copy, const struct orion_piece *piece, uint64_t expected, uint64_t limit)
{
    uint32_t parts = orion_graph_parts(expected, limit, piece->count), most = CUT_NODES_MOST / (piece->count + 1);
    if (most < 2) most = 2;
    if (most > PIECES_MOST + 1 - copy->pieces) most = PIECES_MOST + 1 - copy->pieces;
    return parts < most ? parts : most;
}

/* Cuts a piece that takes longer than the window. Returns the number of pieces in its place. */
static uint32_t shorten(struct orion_process *process, struct orion_graph_copy *copy, uint32_t index, uint64_t expected,
                        uint64_t limit)
{
    struct orion_piece *piece = &copy->piece[index];
    uint32_t parts = parts_of(copy, piece, expected, limit);
    if (piece->whole || !orion_graph_is_long(expected, limit)) return 1;
    if (parts > 1 && orion_graph_cut(copy, index, parts)) {
        orion_lengths_estimate(process, &copy->piece[index], parts, expected);
        return parts;
    }
    if (parts == 1 && orion_graph_copy_enter_child(copy, piece) && prepare(process, piece->inner, expected, limit)) {
        orion_piece_drop(piece);
        return 1;
    }
    piece->whole = true;
    if (piece->inner != NULL) orion_graph_copy_leave_child(piece);
    return 1;
}

/* Whether the piece has an executable that lacks parameters at most. It gets them right before its launch: they are in the
 * piece's graph, or those of kernels whose shape has not changed, and the driver does not refuse them. */
static bool is_made(const struct orion_piece *piece) { return piece->exec != NULL && !piece->reshaped; }

/* Makes all pieces ready for a launch. The first piece, which has all nodes, gets no executable of its own, and has the
 * duration of the program's. False: the graph has no pieces, or the driver refused something. */
static bool prepare(struct orion_process *process, struct orion_graph_copy *copy, uint64_t whole_ns, uint64_t limit)
{
    for (uint32_t i = 0; i < copy->pieces;) {
        struct orion_piece *piece = &copy->piece[i];
        bool first = piece->exec == NULL && piece->inner == NULL;
        uint64_t expected = piece->inner != NULL ? 0 : first ? whole_ns : orion_length_of(process, piece->exec);
        bool needs_graph = piece->exec == NULL || piece->general || (orion_graph_is_long(expected, limit) && !piece->whole);
        if (needs_graph && !orion_piece_settle(copy, piece)) return false;
        i += shorten(process, copy, i, expected, limit);
    }
    if (copy->pieces == 1 && copy->piece[0].inner == NULL) return false;
    for (uint32_t i = 0; i < copy->pieces; i++) {
        struct orion_piece *piece = &copy->piece[i];
        bool ready =
            piece->inner != NULL ? prepare(process, piece->inner, 0, limit) : is_made(piece) || orion_piece_renew(copy, piece);
        if (!ready) return false;
    }
    return true;
}

/* -- Launches -------------------------------------------------------------------------------------------------------- */

static bool hp_may_arrive_on(const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&gpu->role, memory_order_relaxed) == ORION_ROLE_BE && orion_policy_gates(orion_gpu_policy(gpu)) &&
           orion_gpu_hp_clients(gpu) > 0;
}

/* On the stream's GPU, or on another one on which the graph has kernels. */
static bool hp_may_arrive(struct orion_process *process, const struct orion_gpu *gpu, CUgraphExec exec)
{
    uint32_t gpus = gpu->client == 0 ? orion_graph_gpus(orion_graphs(process), exec) : 0;
    bool arrives = hp_may_arrive_on(gpu);
    for (; gpus != 0 && !arrives; gpus &= gpus - 1) arrives = hp_may_arrive_on(&process->gpus[__builtin_ctz(gpus)]);
    return arrives;
}

static void runs_whole(struct orion_process *process, CUgraphExec exec)
{
    struct orion_duration *entry = orion_duration_find(orion_durations(process), orion_graph_identity(orion_graphs(process), exec));
    if (entry != NULL) orion_facts_clear_flags(entry, ORION_FACTS_HAS_PIECES);
    atomic_fetch_or(&orion_graph_copies(process)->some, ORION_SOME_WHOLE);
}

/* A kernel may launch another graph that runs once all of the kernel's own graph has ended (a tail launch). In pieces, it would run once
 * the kernel's piece has ended. Which kernels do so is not known. */
static bool may_meet_device_graphs(struct orion_process *process)
{
    return atomic_load_explicit(&orion_graph_copies(process)->some, memory_order_relaxed) & ORION_SOME_BY_DEVICE;
}

/* Whether the graph takes longer than the window. If it has no pieces yet, *whole_ns becomes its expected time. */
static bool needs_pieces(struct orion_process *process, struct orion_graph_copy *copy, const struct orion_gpu *gpu,
                         uint64_t *whole_ns, uint64_t limit)
{
    if (may_meet_device_graphs(process) && !copy->waits) orion_pieces_stuck(process, copy);
    if (copy->refused || copy->waits || !hp_may_arrive(process, gpu, copy->exec)) return false;
    return orion_lengths_need_pieces(process, copy, whole_ns, limit);
}

static bool are_ready(struct orion_process *process, struct orion_graph_copy *copy, uint64_t whole_ns, uint64_t limit)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    copy->refused = !prepare(process, copy, whole_ns, limit);
    orion_capture_unrelax(&relaxed);
    if (copy->refused) runs_whole(process, copy->exec);
    return !copy->refused;
}

/* How long a piece should take at most. Where be may run beside a busy hp, a piece must fit into the window (overlap.h), so the
 * quarter that a piece may take more (graph_order.h) must, too. */
static uint64_t longest_piece(const struct orion_gpu *gpu)
{
    uint64_t window = orion_window_narrowed(gpu);
    return orion_policy_overlaps(gpu) ? window - window / 5 : window;
}

bool orion_pieces_begin(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_name stream)
{
    struct orion_stream_record *stream_record = orion_stream_record_of(process, stream);
    if (stream_record == NULL || orion_capture_records(process, stream)) return false;
    if (atomic_exchange_explicit(&copy->busy, 1, memory_order_acquire) != 0) return false;
    uint64_t whole_ns = 0, limit = longest_piece(stream_record->gpu);
    bool follows = orion_graph_follow(process, copy, stream_record, stream);
    bool needed = needs_pieces(process, copy, stream_record->gpu, &whole_ns, limit);
    copy->in_pieces = follows && needed && are_ready(process, copy, whole_ns, limit) &&
                      orion_graph_event_behind(process, copy, stream_record) != NULL;
    if (copy->in_pieces) return true;
    copy->turns = needed && !follows;
    copy->uploaded = true; /* by the launch */
    orion_graph_note_stream(process, copy, stream_record);
    if (copy->event != NULL) copy->spare = copy->event, copy->event = NULL;
    atomic_store_explicit(&copy->busy, 0, memory_order_release);
    return false;
}

bool orion_pieces_renewed(const struct orion_graph_copy *copy, struct orion_piece *piece)
{
    if (piece->exec != NULL && !piece->stale) return true;
    struct orion_relaxed relaxed = orion_capture_relax();
    bool renewed = orion_piece_renew(copy, piece);
    orion_capture_unrelax(&relaxed);
    return renewed;
}

void orion_pieces_stuck(struct orion_process *process, struct orion_graph_copy *copy)
{
    copy->waits = true;
    runs_whole(process, copy->exec);
}

void orion_pieces_failed(struct orion_process *process, struct orion_graph_copy *copy)
{
    copy->refused = true;
    runs_whole(process, copy->exec);
}

/* The driver takes 1.9 to 2.8 times as long to set the nodes of an executable that was never launched or uploaded
 * (docs/results/graph-cuts.md). A graph that is in pieces from its first launch on has such an executable. So it is uploaded, once
 * the program has set one of its nodes, while hp is idle: the call may wait for work that hp holds. A refusal costs only time. */
static void upload(const struct orion_gpu *gpu, struct orion_graph_copy *copy, struct orion_stream_name stream)
{
    CUresult (*CUDAAPI call)(CUgraphExec, CUstream) =
        stream.per_thread ? orion_driver.cuGraphUpload_ptsz : orion_driver.cuGraphUpload;
    if (!copy->is_set || copy->uploaded || gpu == NULL || orion_gate_closed(gpu)) return;
    copy->uploaded = true;
    if (call != NULL) call(copy->exec, stream.handle);
}

void orion_pieces_launched(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_name stream)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    struct orion_stream_record *stream_record = orion_stream_record_of(process, stream);
    upload(stream_record != NULL ? stream_record->gpu : NULL, copy, stream); /* behind the pieces, so it needs no stop of its own */
    CUresult (*CUDAAPI record)(CUevent, CUstream) =
        stream.per_thread ? orion_driver.cuEventRecord_ptsz : orion_driver.cuEventRecord;
    CUevent event = stream_record != NULL ? orion_graph_event_behind(process, copy, stream_record) : copy->event;
    copy->number = stream_record != NULL && event != NULL ? orion_event_word_write(process, stream_record) : 0;
    bool recorded = event != NULL && record != NULL && record(event, stream.handle) == CUDA_SUCCESS;
    copy->event = recorded ? event : NULL;
    copy->spare = recorded ? NULL : event;
    orion_capture_unrelax(&relaxed);
    orion_graph_note_stream(process, copy, stream_record);
    atomic_store_explicit(&copy->busy, 0, memory_order_release);
}

void orion_pieces_not_launched(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_name stream)
{
    if (!copy->turns || atomic_exchange_explicit(&copy->busy, 1, memory_order_acquire) != 0) return;
    orion_pieces_launched(process, copy, stream);
}

void orion_pieces_say_whole(struct orion_process *process, CUgraphExec exec, struct orion_stream_name stream)
{
    char name[96] = "";
    struct orion_graph_facts facts;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, stream);
    if (stream_record == NULL || !hp_may_arrive(process, stream_record->gpu, exec)) return;
    uint64_t limit = orion_window_narrowed(stream_record->gpu);
    if (orion_graph_facts(orion_graphs(process), exec, &facts) && facts.kernels <= 1) return; /* as long as a kernel */
    if (!orion_graph_is_long(orion_length_of(process, exec), limit)) return;
    orion_kernel_name(process, orion_graph_identity(orion_graphs(process), exec), name, sizeof name);
    orion_say_once_about(process, ORION_SAY_WHOLE_GRAPH, name);
}
