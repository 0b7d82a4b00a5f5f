/* The parts of the command-driven CUDA program that its files share. main.c lists the commands. */
#ifndef CLIENT_SCRIPTED_H
#define CLIENT_SCRIPTED_H

#include <cuda.h>
#include <stdint.h>

#define STREAMS 2048

struct arguments { double a, b, c, d; };

/* A command returns RESULT: a CUDA result unless main.c says otherwise. */
typedef double command(const struct arguments *at);

/* -- device.c: the device that commands use, launches, and ways to wait for them ----------------------------------------- */

struct used_device {
    CUcontext context;
    CUfunction timed;
    CUevent event;
    CUstream streams[STREAMS];
};
extern struct used_device *used;

extern const char timed_code[];
CUresult load(CUfunction *function);                                          /* loads the kernel into the current context */
CUresult load_code(CUfunction *function, const char *code, const char *name); /* the same for a kernel of other code */
CUresult launch_on(CUfunction function, CUstream stream, uint64_t microseconds);
CUresult launch(uint64_t microseconds, double stream);
command open_only, initialise, use, launches, cooperate, graphs, run, synchronise, synchronise_context, synchronise_event, follow,
    host_functions, query, query_event;

/* -- delays.c: kernels that are timed behind one that spins ---------------------------------------------------------------- */

command timings;

/* -- greens.c: work in a green context of the program; meetings.c: kernels with a grid barrier ----------------------------- */

CUstream stream_of(double number);
command in_green_context;
command meet, meet_in_clusters, meet_in_graph;

/* -- code.c: calls for which the driver loads code ------------------------------------------------------------------------ */

command load_kernels, call_for_code;

/* -- graphs.c: graphs whose kernels log their runs ------------------------------------------------------------------------- */

command mute, make_graph, play, written, own_launches, unmake;

/* -- loops.c: work for a while; lifetimes.c: streams and contexts; allocations.c: device memory; processes.c: what a process
 *    does around CUDA ----------------------------------------------------------------------------------------------------- */

command loop, pausing, stamps, flood, serve, threads, handshake;
command streams, crowd, threads_that_end, reset, retain, another_context;
command allocate, allocate_many, is_managed, share_last, pin_last, ask_last, free_last, unmap, copy_in, information, total_memory,
    inform;

/* -- churn.c ------------------------------------------------------------------------------------------------------------- */

command churn, room;

/* -- unstopped.c: calls that the driver does not stop while the process is away ---------------------------------------------- */

command unstopped;

/* -- exits.c: what a process does while it exits ----------------------------------------------------------------------------- */

command at_exit, exit_in_thread;

/* -- pools.c: memory pools, and memory of graphs --------------------------------------------------------------------------- */

command pool_keeps, pool_takes, pool_gives, pool_trims, pool_holds, pool_ends;
command graph_of_allocation, graph_runs, graph_uploads, graphs_hold;
command touch, move_root, forks, fork_and_launch, spawn, replace, open_and_close, future, close_descriptors, use_descriptors, leave,
    leave_at_once;

/* -- main.c: the answers --------------------------------------------------------------------------------------------- */

uint64_t now(void); /* CLOCK_MONOTONIC, nanoseconds */
void sleep_until(uint64_t when);
void show(uint64_t number); /* adds to MORE */
unsigned shown_so_far(void);
void show_cpu(double seconds); /* before MORE */

#endif
