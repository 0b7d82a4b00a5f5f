#include "be/graph_pieces.h"

#include <stdlib.h>
#include <string.h>

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

/* A duration stays unknown if hp was busy during each launch that was timed. After UNKNOWN_MOST launches the hook cuts
 * without knowing, as if the work took UNKNOWN_WINDOWS windows. */
#define UNKNOWN_MOST 4u
#define UNKNOWN_WINDOWS 8u

/* Each part of a cut is made from a clone of the whole piece, so a cut takes time for parts times nodes. A long graph is
 * cut in several launches. More pieces would replace the records of other graphs (learning/graphs.h). */
#define CUT_NODES_MOST (1u << 16)
#define PIECES_MOST 1024u

/* -- Executables ----------------------------------------------------------------------------------------------------- */

static void drop_executable(struct orion_piece *piece)
{
    if (piece->exec == NULL) return;
    orion_graph_ending(piece->exec);
    orion_driver.cuGraphExecDestroy(piece->exec); /* the driver ends it after its last launch */
    piece->exec = NULL;
}

/* own: the piece's nodes, `stride` bytes apart. */
static bool disable(const struct orion_graph_copy *copy, const struct orion_piece *piece, const CUgraphNode *own, size_t stride)
{
    for (uint32_t i = 0; copy->disables && i < piece->count; i++) {
        const void *node = (const char *)own + i * stride;
        if (copy->node[piece->first + i].disabled &&
            orion_driver.cuGraphNodeSetEnabled(piece->exec, *(const CUgraphNode *)node, 0) != CUDA_SUCCESS)
            return false;
    }
    return true;
}

static bool instantiate(const struct orion_graph_copy *copy, struct orion_piece *piece, const CUgraphNode *own, size_t stride)
{
    if (orion_driver.cuGraphInstantiateWithFlags(&piece->exec, piece->graph, copy->flags) != CUDA_SUCCESS) {
        piece->exec = NULL;
        return false;
    }
    piece->stale = false;
    orion_graph_made(piece->exec, piece->graph);
    return disable(copy, piece, own, stride);
}

/* The executable gets the parameters of the piece's graph. The driver cannot update everything. */
static bool renew(const struct orion_graph_copy *copy, struct orion_piece *piece)
{
    CUgraphExecUpdateResultInfo why;
    if (piece->exec != NULL && !piece->stale) return true;
    if (piece->exec != NULL && orion_driver.cuGraphExecUpdate_v2 != NULL &&
        orion_driver.cuGraphExecUpdate_v2(piece->exec, piece->graph, &why) == CUDA_SUCCESS) {
        orion_graph_made(piece->exec, piece->graph);
        piece->stale = false;
    }
    if (piece->stale) drop_executable(piece);
    const CUgraphNode *own = &copy->node[piece->first].own;
    /* Whether an update keeps nodes disabled is not documented. */
    return piece->exec != NULL ? disable(copy, piece, own, sizeof *copy->node) : instantiate(copy, piece, own, sizeof *copy->node);
}

/* -- Cutting --------------------------------------------------------------------------------------------------------- */

/* Makes `part` of nodes [first, first + count) of the piece, and writes their handles into `own`. */
static bool make_part(const struct orion_graph_copy *copy, const struct orion_piece *piece, struct orion_piece *part,
                      CUgraphNode *own)
{
    if (orion_driver.cuGraphClone(&part->graph, piece->graph) != CUDA_SUCCESS) return false;
    for (uint32_t i = piece->first; i < piece->first + piece->count; i++) {
        CUgraphNode node;
        if (orion_driver.cuGraphNodeFindInClone(&node, copy->node[i].own, part->graph) != CUDA_SUCCESS) return false;
        if (i >= part->first && i < part->first + part->count) own[i - piece->first] = node;
        else if (orion_driver.cuGraphDestroyNode(node) != CUDA_SUCCESS) return false;
    }
    return instantiate(copy, part, own + (part->first - piece->first), sizeof *own);
}

static void drop_parts(struct orion_piece *part, uint32_t parts)
{
    for (uint32_t i = 0; i < parts; i++) {
        drop_executable(&part[i]);
        if (part[i].graph != NULL) orion_driver.cuGraphDestroy(part[i].graph);
    }
}

/* The parts take the place of the piece. Nothing can fail here. */
static void replace(struct orion_graph_copy *copy, uint32_t index, const struct orion_piece *made, uint32_t parts,
                    const CUgraphNode *own, struct orion_piece *all)
{
    struct orion_piece old = copy->piece[index];
    memcpy(all, copy->piece, index * sizeof *all);
    memcpy(all + index, made, parts * sizeof *all);
    memcpy(all + index + parts, copy->piece + index + 1, (copy->pieces - index - 1) * sizeof *all);
    for (uint32_t i = 0; i < old.count; i++) copy->node[old.first + i].own = own[i];
    free(copy->piece);
    copy->piece = all;
    copy->pieces += parts - 1;
    for (uint32_t i = index; i < copy->pieces; i++)
        for (uint32_t j = 0; j < all[i].count; j++) copy->node[all[i].first + j].piece = i;
    drop_executable(&old);
    orion_driver.cuGraphDestroy(old.graph);
}

/* Cuts a piece into parts with executables. False: it stays as it was. */
static bool cut(struct orion_graph_copy *copy, uint32_t index, uint32_t parts)
{
    struct orion_piece *piece = &copy->piece[index];
    struct orion_piece *made = calloc(parts, sizeof *made), *all = calloc(copy->pieces + parts, sizeof *all);
    CUgraphNode *own = calloc(piece->count, sizeof(CUgraphNode));
    bool cut = made != NULL && all != NULL && own != NULL;
    for (uint32_t i = 0; cut && i < parts; i++) {
        uint32_t begin = orion_graph_part_begin(&copy->level[piece->first], piece->count, parts, i);
        made[i].first = piece->first + begin;
        made[i].count = orion_graph_part_begin(&copy->level[piece->first], piece->count, parts, i + 1) - begin;
        cut = make_part(copy, piece, &made[i], own);
    }
    if (cut) replace(copy, index, made, parts, own, all);
    else if (made != NULL) drop_parts(made, parts);
    if (!cut) free(all);
    free(made);
    free(own);
    return cut;
}

/* The time that the executable is expected to take; 0: unknown. */
static uint64_t expected_of(struct orion_process *process, CUgraphExec exec, uint32_t *unknown, uint64_t limit)
{
    struct orion_kernel_facts facts;
    orion_kernel_facts(orion_durations(process), orion_graph_identity(orion_graphs(process), exec), &facts);
    if (facts.expected_ns != 0) return facts.expected_ns;
    return ++*unknown > UNKNOWN_MOST ? UNKNOWN_WINDOWS * limit : 0;
}

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
    if (parts > 1 && cut(copy, index, parts)) return parts;
    if (parts == 1 && orion_graph_copy_enter_child(copy, piece) && prepare(process, piece->inner, expected, limit)) {
        drop_executable(piece);
        return 1;
    }
    piece->whole = true;
    if (piece->inner != NULL) orion_graph_copy_leave_child(piece);
    return 1;
}

/* Makes all pieces ready for a launch. The first piece, which has all nodes, gets no executable of its own, and has the
 * duration of the program's. False: the graph has no pieces, or the driver refused something. */
static bool prepare(struct orion_process *process, struct orion_graph_copy *copy, uint64_t whole_ns, uint64_t limit)
{
    for (uint32_t i = 0; i < copy->pieces;) {
        struct orion_piece *piece = &copy->piece[i];
        bool first = piece->exec == NULL && piece->inner == NULL;
        uint64_t expected = piece->inner != NULL ? 0 : first ? whole_ns : expected_of(process, piece->exec, &piece->unknown, limit);
        i += shorten(process, copy, i, expected, limit);
    }
    if (copy->pieces == 1 && copy->piece[0].inner == NULL) return false;
    for (uint32_t i = 0; i < copy->pieces; i++) {
        struct orion_piece *piece = &copy->piece[i];
        if (piece->inner != NULL ? !prepare(process, piece->inner, 0, limit) : !renew(copy, piece)) return false;
    }
    return true;
}

/* -- Launches -------------------------------------------------------------------------------------------------------- */

/* The record may belong to another stream once a stream has ended. */
static void note_stream(struct orion_process *process, struct orion_graph_copy *copy,
                        const struct orion_stream_record *stream_record)
{
    copy->stream_record = stream_record;
    copy->stream_epoch = atomic_load(&process->stream_record_epoch);
}

/* The launch waits for the last one, if that was in pieces and in another stream. False: the last launch was of the
 * program's executable in another stream, so only that executable's next launch waits for it. */
static bool follow_last(struct orion_process *process, struct orion_graph_copy *copy,
                        const struct orion_stream_record *stream_record, struct orion_stream_name stream)
{
    bool same = copy->stream_record == stream_record && copy->stream_epoch == atomic_load(&process->stream_record_epoch) &&
                !orion_stream_record_is_shared(process, stream_record);
    if (copy->event != NULL && atomic_load(&process->context_epoch) != copy->context_epoch) copy->event = copy->spare = NULL;
    if (same || copy->stream_record == NULL) return true;
    if (copy->event == NULL) return false;
    struct orion_relaxed relaxed = orion_capture_relax();
    CUresult (*CUDAAPI wait)(CUstream, CUevent, unsigned) =
        stream.per_thread ? orion_driver.cuStreamWaitEvent_ptsz : orion_driver.cuStreamWaitEvent;
    bool follows = wait != NULL && wait(stream.handle, copy->event, 0) == CUDA_SUCCESS;
    orion_capture_unrelax(&relaxed);
    return follows;
}

static bool hp_may_arrive(const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&gpu->role, memory_order_relaxed) == ORION_ROLE_BE && orion_policy_gates(orion_gpu_policy(gpu)) &&
           atomic_load_explicit(&gpu->policy->hp_clients, memory_order_relaxed) > 0;
}

static void runs_whole(struct orion_process *process, CUgraphExec exec)
{
    struct orion_duration *entry = orion_duration_find(orion_durations(process), orion_graph_identity(orion_graphs(process), exec));
    if (entry != NULL) orion_facts_clear_flags(entry, ORION_FACTS_HAS_PIECES);
    atomic_store(&orion_graph_copies(process)->some_whole, true);
}

/* Whether the graph takes longer than the window. If it has no pieces yet, *whole_ns becomes its expected time. */
static bool needs_pieces(struct orion_process *process, struct orion_graph_copy *copy, const struct orion_gpu *gpu,
                         uint64_t *whole_ns, uint64_t limit)
{
    if (copy->refused || copy->waits || !hp_may_arrive(gpu)) return false;
    if (copy->pieces > 1 || copy->piece[0].inner != NULL) return true;
    *whole_ns = expected_of(process, copy->exec, &copy->piece[0].unknown, limit);
    return orion_graph_is_long(*whole_ns, limit);
}

static bool are_ready(struct orion_process *process, struct orion_graph_copy *copy, uint64_t whole_ns, uint64_t limit)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    copy->refused = !prepare(process, copy, whole_ns, limit);
    orion_capture_unrelax(&relaxed);
    if (copy->refused) runs_whole(process, copy->exec);
    return !copy->refused;
}

bool orion_pieces_begin(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_name stream)
{
    struct orion_stream_record *stream_record = orion_stream_record_of(process, stream);
    if (stream_record == NULL || orion_capture_records(process, stream)) return false;
    if (atomic_exchange_explicit(&copy->busy, 1, memory_order_acquire) != 0) return false;
    uint64_t whole_ns = 0, limit = orion_window_narrowed(stream_record->gpu);
    bool follows = follow_last(process, copy, stream_record, stream);
    bool needed = needs_pieces(process, copy, stream_record->gpu, &whole_ns, limit);
    if (follows && needed && are_ready(process, copy, whole_ns, limit)) return true;
    copy->turns = needed && !follows;
    note_stream(process, copy, stream_record);
    if (copy->event != NULL) copy->spare = copy->event, copy->event = NULL;
    atomic_store_explicit(&copy->busy, 0, memory_order_release);
    return false;
}

void orion_pieces_stuck(struct orion_process *process, struct orion_graph_copy *copy)
{
    copy->waits = true;
    runs_whole(process, copy->exec);
}

/* A stream records events of its own context only. */
static CUevent event_in(CUcontext context)
{
    CUevent event = NULL;
    CUcontext popped;
    if (orion_driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return NULL;
    if (orion_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) event = NULL;
    orion_driver.cuCtxPopCurrent_v2(&popped);
    return event;
}

void orion_pieces_launched(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_name stream)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    CUevent event = copy->event != NULL ? copy->event : copy->spare;
    CUresult (*CUDAAPI record)(CUevent, CUstream) =
        stream.per_thread ? orion_driver.cuEventRecord_ptsz : orion_driver.cuEventRecord;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, stream);
    bool recorded = event != NULL && record != NULL && record(event, stream.handle) == CUDA_SUCCESS;
    if (!recorded && stream_record != NULL && record != NULL) { /* none yet, or the stream is of another context */
        if (event != NULL) orion_driver.cuEventDestroy_v2(event);
        event = event_in(stream_record->context);
        copy->context_epoch = atomic_load(&process->context_epoch);
        recorded = event != NULL && record(event, stream.handle) == CUDA_SUCCESS;
    }
    copy->event = recorded ? event : NULL;
    copy->spare = recorded ? NULL : event;
    orion_capture_unrelax(&relaxed);
    note_stream(process, copy, stream_record);
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
    uint32_t unknown = 0;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, stream);
    if (stream_record == NULL || !hp_may_arrive(stream_record->gpu)) return;
    uint64_t limit = orion_window_narrowed(stream_record->gpu);
    if (!orion_graph_is_long(expected_of(process, exec, &unknown, limit), limit)) return;
    orion_kernel_name(process, orion_graph_identity(orion_graphs(process), exec), name, sizeof name);
    orion_say_once_about(process, ORION_SAY_WHOLE_GRAPH, name);
}
