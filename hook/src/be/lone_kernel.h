/* A piece of a graph that is one kernel, launched as that kernel.
 *
 * The kernels of a graph run on all SMs, whatever the stream. So beside a busy hp a piece may run only if it fits into the
 * window, although the hook would move the same kernel to a part of the SMs if the program launched it (overlap.h). So where
 * hp's owner grants a budget, a piece that is one kernel, or a child graph of one kernel, is launched as a kernel if it does
 * not fit. It then has the kernel's identity, and is moved, timed and learnt as any kernel.
 *
 * Not launched in this way: cooperative kernels, kernels with clusters of blocks, disabled nodes, kernels of another context
 * than the stream's, and launches while the stream's context is not current. Nor are any in a process with graphs that
 * kernels launch: such a kernel must be in a graph.
 *
 * Rejected: executables whose nodes were made in the green context. Each piece would need two, each update would cost twice,
 * and each size of the part would need its own. */
#ifndef ORION_LONE_KERNEL_H
#define ORION_LONE_KERNEL_H

#include <cuda.h>
#include <stdbool.h>

#include "be/graph_copies.h"

/* Whether be's kernels may run beside a busy hp, on a part of the SMs. */
bool orion_lone_kernels_matter(struct orion_process *process, const struct orion_stream_record *stream_record);

/* The kernel that the piece is, with the parameters that the program has set last. They are valid until the next change of the
 * graph. False: the piece must be launched as an executable. */
bool orion_lone_kernel_of(struct orion_process *process, const struct orion_stream_record *stream_record,
                          const struct orion_graph_copy *copy, struct orion_piece *piece, CUDA_KERNEL_NODE_PARAMS *kernel);

/* The driver refused to launch the kernel. */
void orion_lone_kernel_refused(struct orion_piece *piece);

#endif
