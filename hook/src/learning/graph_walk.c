#include "learning/graph_walk.h"

#include <stdlib.h>

#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/extent.h"
#include "learning/kernels.h"
#include "learning/launch.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/place.h"

#define DEPTH_MOST 8u /* of child graphs in child graphs */
#define NODES_MOST (1u << 20)
#define OCCUPANCIES 64u /* cached during one walk: most graphs have many nodes but few different kernels */

struct occupancy {
    const void *function;
    uint32_t threads, shared_bytes;
    uint64_t blocks;
    uint32_t need;
};
struct walker {
    struct orion_process *process;
    struct orion_graph_walk *walk;
    struct orion_graph_list *list; /* NULL: the caller wants none */
    bool only_parts;               /* not the kernels' numbers of SMs and classes: SMs take a call of the driver for each kernel */
    uint32_t gpus;
    CUcontext primary[ORION_GPUS];
    struct occupancy occupancy[OCCUPANCIES];
};

uint64_t orion_graph_part(uint64_t identity) { return orion_mix(identity * UINT64_C(0x9e3779b97f4a7c15) + ORION_WORK_GRAPH); }

bool orion_graph_child(CUgraphNode node, CUgraph *child)
{
    return orion_driver.cuGraphChildGraphNodeGetGraph != NULL &&
           orion_driver.cuGraphChildGraphNodeGetGraph(node, child) == CUDA_SUCCESS;
}

static uint32_t need_of(struct walker *walker, const void *function, uint64_t blocks, uint32_t threads, uint32_t shared_bytes)
{
    uint64_t hash = orion_mix((uint64_t)(uintptr_t)function + blocks * UINT64_C(0x9e3779b97f4a7c15) + threads);
    struct occupancy *known = &walker->occupancy[(hash >> 20) % OCCUPANCIES];
    if (known->function != function || known->blocks != blocks || known->threads != threads || known->shared_bytes != shared_bytes)
        *known =
            (struct occupancy){function, threads, shared_bytes, blocks, orion_kernel_need(function, blocks, threads, shared_bytes)};
    return known->need;
}

static uint32_t class_of(struct orion_process *process, uint64_t identity, uint64_t mark)
{
    struct orion_kernel_facts facts;
    orion_kernel_facts(orion_durations(process), identity, &facts);
    if (facts.kernel_class == ORION_CLASS_UNKNOWN) orion_kernel_facts(orion_durations(process), identity ^ mark, &facts);
    return facts.kernel_class;
}

/* Not by making a context current, which may be a green one (streams/place.h). */
static void find_gpus(struct walker *walker)
{
    uint32_t gpus = orion_process_gpus(walker->process);
    if (gpus < 2) return;
    for (uint32_t i = 0; i < gpus; i++) walker->primary[i] = orion_primary_of(walker->process->gpus[i].device);
    walker->gpus = gpus;
}

static void note_gpu(struct walker *walker, CUcontext context)
{
    for (uint32_t i = 0; i < walker->gpus && context != NULL; i++)
        if (walker->primary[i] == context) walker->walk->gpus |= 1u << i;
}

static bool add_kernel(struct walker *walker, CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    struct orion_graph_walk *walk = walker->walk;
    if (orion_driver.cuGraphKernelNodeGetParams_v2 == NULL) return false;
    if (orion_driver.cuGraphKernelNodeGetParams_v2(node, &kernel) != CUDA_SUCCESS) return false;
    struct orion_launch launch = orion_launch_of_node(&kernel);
    struct orion_kernel_key key = orion_kernel_key(orion_kernels(walker->process), launch.function);
    uint64_t identity = orion_launch_identity_of(key, &launch);
    uint64_t blocks = (uint64_t)launch.grid_x * launch.grid_y * launch.grid_z;
    uint32_t threads = launch.block_x * launch.block_y * launch.block_z;
    walk->sum += orion_graph_part(identity);
    walk->local |= orion_identity_is_local(identity);
    walk->collective |= orion_kernel_is_collective(orion_kernels(walker->process), launch.function);
    note_gpu(walker, kernel.ctx);
    if (walker->only_parts) return true;
    walk->kernels++;
    walk->needs += need_of(walker, launch.function, blocks, threads, launch.shared_bytes);
    walk->of_class[class_of(walker->process, identity, key.mark)]++;
    if (blocks * threads > walk->largest) walk->largest = blocks * threads, walk->name = key.name;
    return true;
}

static bool *branches_at(struct orion_graph_walk *walk, unsigned depth)
{
    return depth == 0 ? &walk->branches : &walk->child_branches;
}

static void add_graph(struct walker *walker, CUgraph graph, unsigned depth);

/* Host functions, events and other nodes add only their type. */
static bool add_node(struct walker *walker, CUgraphNode node, unsigned depth, CUgraphNodeType *of_node)
{
    CUgraphNodeType type;
    CUDA_MEMCPY3D box;
    CUDA_MEMSET_NODE_PARAMS set;
    CUgraph child;
    if (orion_driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
    *of_node = type;
    if (walker->list != NULL) walker->list->types |= 1u << ((unsigned)type < 31 ? (unsigned)type : 31);
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return add_kernel(walker, node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (orion_driver.cuGraphMemcpyNodeGetParams == NULL || orion_driver.cuGraphMemcpyNodeGetParams(node, &box) != CUDA_SUCCESS)
            break;
        walker->walk->sum += orion_graph_part(orion_copy_3d(&box));
        return true;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (orion_driver.cuGraphMemsetNodeGetParams == NULL || orion_driver.cuGraphMemsetNodeGetParams(node, &set) != CUDA_SUCCESS)
            break;
        walker->walk->sum += orion_graph_part(orion_identity_memset_node(&set));
        return true;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (!orion_graph_child(node, &child)) return false;
        add_graph(walker, child, depth + 1);
        return true;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: /* the driver does not list its bodies */
        *branches_at(walker->walk, depth) = true;
        return false;
    }
    walker->walk->sum += orion_graph_part((uint64_t)type + 2);
    return true;
}

/* Gives the list what one node has added. */
static void enter(struct orion_graph_list *list, size_t at, CUgraphNodeType type, uint64_t part)
{
    list->type[at] = type;
    list->part[at] = part;
}

/* The nodes become the list's, if the list can hold them. */
static bool begin_list(struct orion_graph_list *list, CUgraphNode *nodes, size_t count)
{
    list->type = malloc((count + 1) * sizeof *list->type);
    list->part = malloc((count + 1) * sizeof *list->part);
    if (list->type == NULL || list->part == NULL) return false;
    list->node = nodes;
    list->count = (uint32_t)count;
    return true;
}

static bool has_several_roots(CUgraph graph)
{
    size_t roots = 0;
    return orion_driver.cuGraphGetRootNodes != NULL && orion_driver.cuGraphGetRootNodes(graph, NULL, &roots) == CUDA_SUCCESS &&
           roots > 1;
}

static void add_graph(struct walker *walker, CUgraph graph, unsigned depth)
{
    struct orion_graph_walk *walk = walker->walk;
    struct orion_graph_list *list = depth == 0 ? walker->list : NULL;
    size_t count = 0, edges = 0;
    if (depth >= DEPTH_MOST || orion_driver.cuGraphGetNodes == NULL || orion_driver.cuGraphNodeGetType == NULL ||
        orion_driver.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count > NODES_MOST) {
        walk->whole = false;
        return;
    }
    CUgraphNode *nodes = malloc((count + 1) * sizeof *nodes);
    if (nodes == NULL || (count > 0 && orion_driver.cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS))
        walk->whole = false, count = 0;
    bool listed = walk->whole && list != NULL && begin_list(list, nodes, count);
    for (size_t i = 0; i < count; i++) { /* all of them, because a collective may come behind a node that cannot be read */
        CUgraphNodeType type;
        uint64_t before = walk->sum;
        if (!add_node(walker, nodes[i], depth, &type)) walk->whole = false;
        else if (listed) enter(list, i, type, walk->sum - before);
    }
    if (!listed) free(nodes);
    if (orion_driver.cuGraphGetEdges_v2 != NULL &&
        orion_driver.cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &edges) == CUDA_SUCCESS) {
        walk->sum += edges * UINT64_C(0x9e3779b97f4a7c15);
        *branches_at(walk, depth) |= count > 1 && (edges != count - 1 || has_several_roots(graph));
    }
    if (listed) list->edges = (uint32_t)edges;
}

void orion_graph_list_free(struct orion_graph_list *list)
{
    free(list->node);
    free(list->type);
    free(list->part);
    *list = (struct orion_graph_list){0};
}

static void walk_graph(struct walker *walker, CUgraph graph)
{
    *walker->walk = (struct orion_graph_walk){.whole = true};
    if (walker->list != NULL) *walker->list = (struct orion_graph_list){0};
    add_graph(walker, graph, 0);
    if (walker->list != NULL && (!walker->walk->whole || walker->list->node == NULL)) orion_graph_list_free(walker->list);
}

void orion_graph_walk(struct orion_process *process, CUgraph graph, struct orion_graph_walk *walk, struct orion_graph_list *list)
{
    struct walker walker = {.process = process, .walk = walk, .list = list};
    find_gpus(&walker);
    walk_graph(&walker, graph);
}

void orion_graph_walk_child(struct orion_process *process, CUgraph graph, struct orion_graph_walk *walk,
                            struct orion_graph_list *list)
{
    struct walker walker = {.process = process, .walk = walk, .list = list, .only_parts = true};
    walk_graph(&walker, graph);
}

void orion_graph_walk_node(struct orion_process *process, CUgraphNode node, struct orion_graph_walk *walk)
{
    CUgraphNodeType type;
    struct walker walker = {.process = process, .walk = walk, .only_parts = true};
    *walk = (struct orion_graph_walk){.whole = true};
    if (orion_driver.cuGraphNodeGetType == NULL || !add_node(&walker, node, 0, &type)) walk->whole = false;
}
