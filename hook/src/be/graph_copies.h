/* Copies of be's graphs, from which graph_pieces.c makes executables that hp can stop in between.
 *
 * When a be program instantiates a graph, the hook clones the graph, because the program may destroy or change its own
 * one. A clone takes host memory only. Updates of the program go to its executable first, and then into the clone's
 * memory (graph_parameters.h). After a node's change its piece is stale. The next launch in pieces brings the executables of
 * stale pieces up to date: node by node if only kernels have changed and the identity has not, and else by an update from
 * the piece's graph, whose nodes get their parameters first.
 *
 * The clone is made at once, and not at the first launch in pieces: by then the program may have changed or destroyed its
 * graph, and the driver does not give back the graph of an executable.
 *
 * Some graphs have no copy and run as one piece of work: the driver clones no graph with allocations or conditional
 * nodes; external semaphores; graphs that the device launches; graphs with collectives, because the ranks of a job count
 * launches of collectives and each rank must count the same (collective.h); graphs of one node.
 *
 * The driver allows one thread at a time to use an executable, so a copy needs no lock against the program. `busy` is
 * for programs that break this rule.
 *
 * Rejected: one copy with waits on the valve's word inside (batch memory operations). On an H200 it costs the same, 3 us
 * of GPU time for each cut and 2 us of CPU time (docs/results/graph-cuts.md), but its waits bypass the window, the
 * learning of durations and the gate on the CPU. */
#ifndef ORION_GRAPH_COPIES_H
#define ORION_GRAPH_COPIES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"

struct orion_kept;
struct orion_layout;
struct orion_stream_record;

#define ORION_GRAPH_COPIES 4096u /* a power of two */

/* A node of the program's graph. Nodes are in the order of graph_order.h. */
struct orion_copy_node {
    CUgraphNode program, own; /* the program's handle, and the node in the graph of its piece */
    CUgraphNodeType type;
    uint32_t piece;
    bool disabled;                  /* by the program, in its executable */
    bool behind;                    /* `own` has not got the parameters that are kept, or a node of `child` has not */
    bool due;                       /* and nor has the piece's executable, but it can get them alone, as the node is a kernel */
    bool no_clusters;               /* a kernel whose blocks were in no clusters at an update; false: not known */
    uint64_t part;                  /* of the graph's identity: see learning/graphs.h */
    struct orion_kept *kept;        /* NULL: the program has not set the node's parameters, or they cannot be kept */
    struct orion_graph_copy *child; /* of a child graph that the program has set: its nodes. NULL: none */
};

/* A run of nodes. At first one piece has all nodes and no executable. */
struct orion_piece {
    CUgraph graph;
    CUgraphExec exec;               /* NULL: not made yet */
    struct orion_graph_copy *inner; /* the piece is a long child graph, and this is its copy; then `exec` is not used */
    CUgraphNode lone;               /* the piece is this kernel, and can be launched as one: lone_kernel.h */
    uint32_t first, count;
    bool searched; /* for `lone` */
    bool behind;   /* some nodes may be behind */
    bool stale;    /* parameters have changed since `exec` was made or updated */
    bool general;  /* and not only those of nodes that are due: the executable gets all parameters of `graph` */
    bool reshaped; /* and so has the identity of the piece */
    bool whole;    /* it cannot be cut */
};

struct orion_graph_copy {
    _Atomic uint32_t busy; /* 1: a thread launches it */
    CUgraphExec exec;      /* the program's; NULL: the copy of a child graph */
    bool borrowed;         /* these are the nodes of a child graph in a piece's graph; they are not launched */
    unsigned long long flags;
    uint32_t nodes, pieces, edges;
    uint32_t last;                /* the node that was set last: its index in `node` */
    uint32_t unknown;             /* launches while the duration of the program's executable was unknown */
    uint64_t edge_sum;            /* of the edges as pairs of numbers: see graph_nodes.h */
    uint32_t *from, *to;          /* these pairs */
    bool plain;                   /* no edge has a type */
    struct orion_copy_node *node; /* `nodes` of them */
    uint32_t *level;              /* of each of them */
    uint32_t *rank;               /* by the number of a node in the program's graph: its index in `node` */
    uint32_t *by_handle;          /* hash table of indices + 1 into `node`, by the program's handle */
    uint32_t slots;               /* in by_handle; a power of two */
    struct orion_piece *piece;
    struct orion_layout *layouts; /* of the kernels whose parameters are kept */
    bool disables;                /* the program has disabled nodes */
    bool disables_others;         /* also such that the copy has not: an update does not enable them, so the graph runs whole */
    bool waits;        /* a piece waited for what the program does after the launch, so the graph runs whole from then on */
    bool whole_again;  /* the pieces together fitted into the window, so the program's executable is launched: graph_lengths.h */
    uint32_t relapses; /* how often that executable proved longer than the window all the same */
    bool is_set;       /* the program sets nodes of its executable, one by one */
    bool uploaded;     /* the program's executable was launched or uploaded: see graph_pieces.c */
    bool refused;      /* pieces could not be made; the program's executable is launched until the next update */

    /* The last launch, for launches in several streams: see graph_follow.c. */
    const struct orion_stream_record *stream_record; /* NULL: never launched */
    uint64_t returned;                               /* of that record, after a launch in pieces */
    uint32_t stream_epoch;
    CUcontext context; /* of the event */
    uint32_t ends;     /* orion_ends_of that context when the event was made, or last looked at */
    CUevent event;     /* behind the last launch; NULL: none */
    uint32_t number;   /* of the word before the event: event_words.h */
    bool in_pieces;    /* the last launch was; false: it was of the program's executable */
    bool turns;        /* pieces could not follow the last launch, so an event must be behind this one */
    CUevent spare;     /* an event that is not in use */
};

/* Of a be client: without a copy; with memory; launched by kernels of other graphs, or updated by kernels. */
enum orion_graph_some { ORION_SOME_WHOLE = 1, ORION_SOME_ALLOCATE = 2, ORION_SOME_BY_DEVICE = 4 };

/* Memory of updates, for the nodes of a graph and then its edges. The next update uses it again, of whatever graph: the kernel
 * takes longer to give a process new pages than the hook takes to fill them. */
struct orion_room {
    size_t bytes;
    CUgraphNode node[];
};

struct orion_graph_copies {
    struct orion_room *_Atomic room; /* NULL: none, or a thread uses it. It is freed with the last copy */
    _Atomic uint32_t count;
    _Atomic uint32_t clusters; /* 1: see orion_graph_clusters_begin */
    _Atomic uint32_t some;     /* enum orion_graph_some: which kinds of unusual graphs the process has made */
    struct {
        _Atomic uint64_t exec; /* 0: free */
        struct orion_graph_copy *_Atomic copy;
    } entry[ORION_GRAPH_COPIES];
};
ORION_PART(graph_copies)

/* The copy for the program's executable; NULL: none. In a process without copies this costs one load. */
struct orion_graph_copy *orion_graph_copy_of(struct orion_process *process, CUgraphExec exec);

/* enter_child makes the copy of the child graph that is the only node of a piece; false: it has none. leave_child frees
 * it. */
bool orion_graph_copy_enter_child(struct orion_graph_copy *copy, struct orion_piece *piece);
void orion_graph_copy_leave_child(struct orion_piece *piece);

/* The table of the nodes of a child graph, whose node in a piece's graph is given; NULL: no memory, or the driver refuses.
 * orion_graph_copy_free frees it. */
struct orion_graph_copy *orion_graph_copy_borrowed(CUgraphNode node);
void orion_graph_copy_free(struct orion_graph_copy *copy);

/* Whether a client of this process is a be client, or may become one. */
bool orion_graph_copies_may_serve(struct orion_process *process);

/* After the program has instantiated the graph. Also makes the graph's identity: see learning/graphs.h. */
void orion_graph_copy_made(CUgraphExec exec, CUgraph graph);

/* Before and after cuGraphExecDestroy. */
struct orion_graph_copy *orion_graph_copy_ending(CUgraphExec exec);
void orion_graph_copy_ended(struct orion_graph_copy *copy, CUresult result);

#endif
