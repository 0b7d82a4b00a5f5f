/* What the driver answers in the attributes of a launch reaches the program, although the hook launches with its own copy of them. On the
 * simulated driver, through the hook's wrappers. */
#include "simulated_process.h"

#include "process/policy.h"

static struct orion_policy_page policy;
static struct orion_grant_page grant;
static CUfunction function;
static CUstream stream;

static void begin(void)
{
    CUmodule module = begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    policy.copy[0].kind = ORION_POLICY_ORION;
    gpu->policy = &policy;
    gpu->grant = &grant;
    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
}

static void the_program_gets_the_handle_of_an_updatable_node(bool sets_priority)
{
    CUgraph graph;
    CUlaunchAttribute attributes[] = {
        {.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, .value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}}},
        {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = -3}},
    };
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 64,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream,
                                   .attrs = attributes,
                                   .numAttrs = sets_priority ? 2 : 1};
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuLaunchKernelEx(&config, function, NULL, NULL));
    MUST(cuStreamEndCapture(stream, &graph));
    CHECK(attributes[0].value.deviceUpdatableKernelNode.devNode != NULL);
    CHECK(attributes[0].value.deviceUpdatableKernelNode.deviceUpdatable == 1);
    CHECK(attributes[1].value.priority == -3); /* the program's own value */
    MUST(cuGraphDestroy(graph));
}

int main(void)
{
    begin();
    the_program_gets_the_handle_of_an_updatable_node(false);
    the_program_gets_the_handle_of_an_updatable_node(true);
    puts("launch_attributes: ok");
    return 0;
}
