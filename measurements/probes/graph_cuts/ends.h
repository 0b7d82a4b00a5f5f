/* H: how a process ends while a graph is blocked, and which of its calls wait for the graph. */
#ifndef GRAPH_CUTS_ENDS_H
#define GRAPH_CUTS_ENDS_H

#include "processes.h"

#include <pthread.h>

#define OPENS_AFTER_US 300000.0

/* Waits for the end of a process, at most `most_us`. Returns the time it took, or -1. */
static double end_of(pid_t process, double most_us)
{
    double begun = now_us();
    while (now_us() - begun < most_us) {
        if (waitpid(process, NULL, WNOHANG) == process) return now_us() - begun;
        usleep(100);
    }
    return -1;
}

static void killed_while_blocked(enum situation situation)
{
    clear_page();
    pid_t beside = start_process(be_beside), requested = start_process(be_requested);
    await(READY, 2);
    tell(OTHER_COMMAND, OTHER_ANSWER, 16 + situation);
    tell(REQUEST_COMMAND, REQUEST_ANSWER, 16 + situation);
    put(REQUEST_COMMAND, 32 + situation); /* turn 2: the process is killed during these requests */
    usleep(simulated ? 200000 : 1000000);
    kill(beside, SIGKILL);
    double took = end_of(beside, 10e6);
    await(REQUEST_ANSWER, 32 + situation);
    tell(REQUEST_COMMAND, REQUEST_ANSWER, 48 + IDLE);
    put(REQUEST_COMMAND, 64 + LEAVE);
    waitpid(requested, NULL, 0);
    emit("\"what\": \"SIGKILL\", \"of\": \"%s\", \"ended_after_us\": %.0f, \"word_was_opened\": %s", situation_name[situation], took,
         get(0) ? "false" : "true");
    if (took < 0) set_word(0), end_of(beside, 10e6);
}

static void leave_while_blocked(void)
{
    start();
    struct shape cut = cut_shape();
    CUgraphExec exec = exec_of(&cut);
    set_word(1);
    must(cuGraphLaunch(exec, stream), "launch");
    usleep(20000);
    put(READY, 1);
    exit(0); /* with the handlers of the driver */
}

static void exits_while_blocked(void)
{
    clear_page();
    pid_t process = start_process(leave_while_blocked);
    while (get(READY) != 1 && waitpid(process, NULL, WNOHANG) == 0) usleep(200);
    double took = end_of(process, 3e6);
    if (took < 0) set_word(0);
    double after_opening = took < 0 ? end_of(process, 3e6) : 0;
    if (after_opening < 0) kill(process, SIGKILL), waitpid(process, NULL, 0);
    emit("\"what\": \"exit while a graph waits\", \"ended_after_us\": %.0f, \"after_opening_us\": %.0f", took, after_opening);
}

/* A call in another thread while a graph waits. */
struct call {
    const char *name;
    CUresult (*make)(void);
    CUresult result;
    double returned;
};
static CUgraphExec blocked_exec, other_exec;
static CUgraph other_graph;
static CUgraphNode blocked_node;
static CUdeviceptr some_memory;
static CUstream other_stream;

static CUresult call_launch_again(void) { return cuGraphLaunch(blocked_exec, stream); }
static CUresult call_launch_elsewhere(void)
{
    CUresult result = cuGraphLaunch(other_exec, other_stream);
    return result ? result : cuStreamSynchronize(other_stream);
}
static CUresult call_set_parameters(void)
{
    struct kernel kernel = {21, 0, 0};
    void *parameters[3];
    CUDA_KERNEL_NODE_PARAMS call = call_of(&kernel, parameters, BLOCKS);
    return cuGraphExecKernelNodeSetParams(blocked_exec, blocked_node, &call);
}
static CUresult call_instantiate(void)
{
    CUgraphExec exec;
    return cuGraphInstantiate(&exec, other_graph, 0);
}
static CUresult call_load(void)
{
    CUmodule module;
    CUfunction function;
    CUresult result = cuModuleLoadData(&module, source);
    if (!result) result = cuModuleGetFunction(&function, module, "spin");
    void *parameters[3];
    struct kernel kernel = {5, 0, 0};
    call_of(&kernel, parameters, 1);
    if (!result) result = cuLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, other_stream, parameters, NULL);
    return result ? result : cuStreamSynchronize(other_stream);
}
static CUresult call_allocate(void)
{
    CUdeviceptr memory;
    return cuMemAlloc(&memory, 64u << 20);
}
static CUresult call_copy(void)
{
    uint32_t value;
    CUresult result = cuMemcpyDtoHAsync(&value, some_memory, 4, other_stream);
    return result ? result : cuStreamSynchronize(other_stream);
}
static CUresult call_free(void) { return cuMemFree(some_memory); }
static CUresult call_destroy_exec(void) { return cuGraphExecDestroy(blocked_exec); }
static CUresult call_destroy_stream(void) { return cuStreamDestroy(stream); }
static CUresult call_destroy_context(void) { return cuCtxDestroy(context); }

static void *make_call(void *argument)
{
    struct call *call = argument;
    cuCtxSetCurrent(context);
    call->result = call->make();
    double now = now_us();
    __atomic_store(&call->returned, &now, __ATOMIC_SEQ_CST);
    return NULL;
}

static double returned_at(struct call *call)
{
    double at;
    __atomic_load(&call->returned, &at, __ATOMIC_SEQ_CST);
    return at;
}

static void prepare_blocked_graph(void)
{
    struct shape cut = cut_shape(), plain = {4, 5, 1, 0, false, 0, 0, 0};
    CUgraph graph = graph_of(&cut);
    CUgraphNode nodes[256];
    size_t count = 256;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    must(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING), "stream");
    must(cuGraphGetNodes(graph, nodes, &count), "nodes");
    blocked_node = nodes[0];
    blocked_exec = instantiate(graph);
    other_graph = graph_of(&plain);
    other_exec = instantiate(other_graph);
    must(cuMemAlloc(&some_memory, 4096), "memory");
    must(cuGraphLaunch(other_exec, other_stream), "launch");
    must(cuStreamSynchronize(other_stream), "synchronise");
}

/* Makes the call while a graph is blocked; opens the word after a while if the call has not returned. */
static void while_blocked(struct call *call)
{
    pthread_t thread;
    prepare_blocked_graph();
    set_word(1);
    must(cuGraphLaunch(blocked_exec, stream), "launch");
    usleep(20000);
    call->returned = 0;
    double begun = now_us();
    if (pthread_create(&thread, NULL, make_call, call)) exit(1);
    while (!returned_at(call) && now_us() - begun < OPENS_AFTER_US) usleep(50);
    bool waited = !returned_at(call);
    double opened = now_us();
    set_word(0);
    pthread_join(thread, NULL);
    emit("\"what\": \"a call while a graph waits\", \"call\": \"%s\", \"waited_for_the_word\": %s, \"result\": \"%s\", \"took_us\": %.1f, "
         "\"after_opening_us\": %.1f",
         call->name, waited ? "true" : "false", name_of(call->result), call->returned - begun, waited ? call->returned - opened : 0);
    if (call->make != call_destroy_context) must(cuCtxSynchronize(), "synchronise");
}

static void new_context(void)
{
    CUmodule module;
#if CUDA_VERSION >= 13000
    must(cuCtxCreate(&context, NULL, 0, device), "context");
#else
    must(cuCtxCreate(&context, 0, device), "context");
#endif
    must(cuModuleLoadData(&module, source), "module");
    must(cuModuleGetFunction(&spin_kernel, module, "spin"), "kernel");
}

static void calls_while_blocked(void)
{
    static struct call calls[] = {{"launch the same executable again", call_launch_again, 0, 0},
                                  {"launch another graph in another stream, and wait", call_launch_elsewhere, 0, 0},
                                  {"set parameters of the executable", call_set_parameters, 0, 0},
                                  {"instantiate another graph", call_instantiate, 0, 0},
                                  {"load a module and run its kernel", call_load, 0, 0},
                                  {"cuMemAlloc", call_allocate, 0, 0},
                                  {"copy in another stream, and wait", call_copy, 0, 0},
                                  {"cuMemFree", call_free, 0, 0},
                                  {"cuGraphExecDestroy", call_destroy_exec, 0, 0},
                                  {"cuStreamDestroy", call_destroy_stream, 0, 0},
                                  {"cuCtxDestroy", call_destroy_context, 0, 0}};
    start();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        progress("%s", calls[i].name);
        if (calls[i].make == call_destroy_context) new_context();
        while_blocked(&calls[i]);
    }
}

static void ends(void)
{
    for (int i = 0; i < 2; i++) {
        progress("SIGKILL");
        killed_while_blocked(BLOCKED_IN_GRAPH);
        killed_while_blocked(BLOCKED_IN_STREAM);
    }
    progress("exit");
    exits_while_blocked();
    clear_page();
    pid_t process = start_process(calls_while_blocked);
    waitpid(process, NULL, 0);
}

#endif
