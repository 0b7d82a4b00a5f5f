/* Which client a stream belongs to, and the priority of the streams that a client makes. */
#include "scenarios.h"
#include "threads.h"

#include <string.h>

static CUstream made;

/* As autograd's backward does: an unbound thread works on a client's stream. */
static CUstream of_be;
static void launch_on_bes(void)
{
    launch(of_be, 1);
    DONE(cuStreamSynchronize(of_be));
    marks[0] = now();
}
static void launch_on_made(void)
{
    launch(made, 1);
    DONE(cuStreamSynchronize(made));
}
static void make_and_use(void)
{
    DONE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    launch(made, 1);
    DONE(cuStreamSynchronize(made));
}
static void make(void)
{
    DONE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    launch(made, 1);
}
void a_stream_keeps_its_client(void)
{
    CHECK(start(2) == 0);
    of_be = stream_of(BE);
    CHECK(of_be != NULL && of_be == stream_of(BE) && of_be != stream_of(HP));
    all_of(HP, hp_begins);
    pthread_t backward = in_thread(-1, launch_on_bes);
    all_of(HP, hp_ends);
    pthread_join(backward, NULL);
    CHECK(marks[0] > hp_worked_until);
    CHECK(figures(BE).launches == 1 && figures(BE).gated_launches >= 1);
    all_of(BE, make_and_use); /* a stream that the program made belongs to the first client that uses it */
    all_of(-1, launch_on_made);
    all_of(HP, launch_on_made);
    CHECK(figures(BE).launches == 4 && figures(HP).launches == 1);
    all_of(-1, make); /* belongs to no client until one uses it */
    all_of(-1, launch_on_made);
    CHECK(figures(BE).launches == 4);
    all_of(HP, launch_on_made);
    all_of(-1, launch_on_made);
    CHECK(figures(HP).launches == 3);
}

/* The driver makes this copy on the legacy stream only, which all threads of the process share. */
static void copies_rows(void)
{
    static char rows[16][64];
    CUdeviceptr memory;
    DONE(cuMemAlloc(&memory, sizeof rows));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = rows,
                          .srcPitch = 64,
                          .WidthInBytes = 64,
                          .Height = 16,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 64};
    DONE(cuMemcpy2DUnaligned(&copy));
    DONE(cuMemFree(memory));
}
void the_legacy_stream_belongs_to_no_client(void)
{
    CHECK(start(2) == 0);
    all_of(BE, copies_rows);
    all_of(HP, hp_begins);
    all_of(-1, be_runs); /* as unbound threads do */
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
    all_of(HP, copies_rows);
    CHECK(figures(BE).launches == 0 && figures(BE).gated_launches == 0);
}

static void note_priority(void)
{
    int priority;
    DONE(cuStreamGetPriority(NULL, &priority));
    marks[0] = (uint64_t)(int64_t)priority;
}
static void changes_its_role(void)
{
    int priority, of_client;
    CHECK(set_role(BE, ORION_CLIENT_HP) == 0);
    DONE(cuStreamGetPriority(NULL, &priority));
    DONE(cuStreamGetPriority(stream_of(BE), &of_client));
    CHECK(priority == of_client);
    launch(stream_of(BE), 20);
    uint64_t launched = now();
    DONE(cuStreamSynchronize(NULL)); /* it is the same stream */
    CHECK(now() > launched + 15 * MS);
}
void a_bound_thread_gets_the_stream_of_a_new_role(void)
{
    CHECK(start(2) == 0);
    all_of(BE, changes_its_role);
}

void own_streams_have_priorities(void)
{
    int least, greatest;
    CHECK(start(3) == 0);
    CHECK(set_role(0, ORION_CLIENT_HP) == 0);
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(greatest < least);
    int expected[] = {greatest, least, greatest};
    for (int i = 0; i < 3; i++) {
        all_of(i, note_priority);
        CHECK((int64_t)marks[0] == expected[i]);
    }
    all_of(0, be_runs);
    CHECK(set_role(0, ORION_CLIENT_BE) == -1 && strstr(last_error(), "begun") != NULL);
}

/* -- A stream that the driver refuses ------------------------------------------------------------------------------- */

static CUgreenCtx make_green_context(CUstream *stream, int priority)
{
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned groups = 1;
    DONE(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    DONE(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 32));
    DONE(cuDevResourceGenerateDesc(&description, &part, 1));
    DONE(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    DONE(cuGreenCtxStreamCreate(stream, green, CU_STREAM_NON_BLOCKING, priority));
    return green;
}

static void uses_a_stream_that_outlives_its_green_context(void)
{
    CUstream stream;
    CUgreenCtx green = make_green_context(&stream, 0);
    launch(stream, 1);
    DONE(cuGreenCtxDestroy(green));
    DONE(cuCtxSynchronize());
    DONE(cuStreamDestroy(stream));
    marks[1] = now();
}
void a_stream_outlives_its_green_context(void)
{
    CHECK(start(2) == 0);
    all_of(HP, uses_a_stream_that_outlives_its_green_context);
    all_of(BE, be_runs);
    CHECK(marks[0] < marks[1] + 500 * MS); /* hp does not stay busy */
}

static void asks_for_the_greatest_priority(void)
{
    CUstream streams[3];
    CUcontext context;
    int least, greatest, priority;
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    DONE(cuStreamCreateWithPriority(&streams[0], CU_STREAM_NON_BLOCKING, greatest));
    CUgreenCtx green = make_green_context(&streams[1], greatest);
    DONE(cuCtxGetCurrent(&context));
    DONE(cuCtxSetCurrent(NULL));
    DONE(cuGreenCtxStreamCreate(&streams[2], green, CU_STREAM_NON_BLOCKING, greatest));
    DONE(cuCtxSetCurrent(context));
    for (int i = 0; i < 3; i++) {
        DONE(cuStreamGetPriority(streams[i], &priority));
        CHECK(priority == least);
    }
}
void streams_of_be_have_the_least_priority(void)
{
    CHECK(start(2) == 0);
    all_of(BE, asks_for_the_greatest_priority);
}
