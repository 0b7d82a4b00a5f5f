/* What nodes do: the parameters that the program has set last in its executable. The hook keeps them in the process's
 * memory. Pieces get them at the next launch in pieces, and only where they differ from what the pieces have. So many
 * updates between two launches in pieces cost one update of the pieces, and an update costs no driver call but the one that
 * reads a node.
 *
 * A kernel's arguments are copied by their sizes (argument_layout.h). Where these are unknown, and for batches of memory
 * operations, the piece's node gets the parameters at once.
 *
 * Attributes of kernels stay: cuGraphExecUpdate refuses most changes of them. Of the others only the shape of clusters changes results:
 * the copy does not follow an update that changes it, so the graph runs whole. */
#ifndef ORION_GRAPH_PARAMETERS_H
#define ORION_GRAPH_PARAMETERS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_copy_node;
struct orion_layout;
struct orion_process;

/* What setting a node's parameters does. `failed`: the copy could not follow, until all parameters are set again. */
struct orion_setting {
    bool failed, differs, reshaped; /* reshaped: the node's part of the graph's identity has changed */
    bool local, collective;         /* with `reshaped`: the new identity is local; a new kernel is a collective */
};

/* The node gets these parameters: of the driver's structure for the node's type, or a CUevent *. */
struct orion_setting orion_parameters_set(struct orion_process *process, struct orion_layout **layouts,
                                          struct orion_copy_node *node, const void *parameters);

/* The same, with the parameters of a node of another graph, which must have the same type: `failed` if it has not. */
struct orion_setting orion_parameters_follow(struct orion_process *process, struct orion_layout **layouts,
                                             struct orion_copy_node *node, CUgraphNode from);

/* The node in the piece's graph gets what is kept, or a kernel in the piece's executable. False: the driver refused it. */
bool orion_parameters_give(const struct orion_copy_node *node);
bool orion_parameters_give_exec(CUgraphExec exec, const struct orion_copy_node *node);

/* The identity of work with such parameters; NONE: they do not affect GPU time. *collective: whether it is a collective. */
uint64_t orion_parameters_identity(struct orion_process *process, CUgraphNodeType type, const void *parameters, bool *collective);

#endif
