/* The graphs that the commands of graphs.c launch; graph_kinds.c builds them and changes their parameters. */
#ifndef CLIENT_SCRIPTED_GRAPHS_H
#define CLIENT_SCRIPTED_GRAPHS_H

#include <stdbool.h>

#include "scripted.h"

#define LOGGED 200000

/* What comes after every eighth kernel. CAPTURED and EARLY are made by capture: of an EARLY graph, each kernel may start
 * before the one before it has ended. ALLOCATES, DECIDES and LAUNCHABLE, which the device may launch, cannot be copied. */
enum kind { NODES, CAPTURED, EARLY, CHILDREN, HOSTS, EVENTS, COPIES, WRITES, ALLOCATES, DECIDES, LAUNCHABLE };

struct wanted {
    enum kind kind;
    unsigned kernels;
    uint64_t us;       /* of each kernel */
    unsigned branches; /* between the first and the last kernel; kernel i is in branch i % branches */
    unsigned launch;   /* the number in the kernels' values */
};

/* How a launch gets its parameters: nothing changes; the graph changes, and an update takes it over; calls for the nodes
 * of the executable; the general call for them; an update by another graph of the same shape; an update by a longer graph,
 * which the driver refuses; every second kernel is switched off. */
enum change { NOTHING, IN_GRAPH, IN_EXECUTABLE, IN_GENERAL, ANOTHER, REFUSED, SWITCHES };

/* The parameters of a kernel node. */
struct kernel {
    uint64_t us, log, value;
    uint32_t sms;
    void *pointers[4];
};

/* graphs.c: what nodes write to. */
struct targets {
    CUfunction kernel;
    uint64_t log[1 + LOGGED]; /* the count, then what kernels and host nodes wrote */
    uint64_t log_address;     /* 0: kernels write nothing */
    CUdeviceptr memory;       /* a word that memory nodes set, and its copy */
    volatile uint32_t word;   /* WRITES sets it */
    CUevent event;
};
extern struct targets targets;

CUresult build(const struct wanted *wanted, CUgraph *graph);

/* Change the values in all nodes of the graph to those of a launch; `executable`: NULL: of the graph itself. */
CUresult set_values(CUgraph graph, CUgraphExec executable, enum change how, unsigned launch);

#endif
