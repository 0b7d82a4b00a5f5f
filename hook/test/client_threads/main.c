/* Threads of one process as clients: runs the scenario that the command line names (`list` prints them), under the
 * hook, without an agent, on the simulated GPU. */
#include "scenarios.h"
#include "threads.h"

#include <stdio.h>
#include <string.h>

#define SCENARIO(name) {#name, name},
#define BASELINE(name) {#name, name},
static const struct {
    const char *name;
    void (*body)(void);
} scenarios[] = {SCENARIOS BASELINE_SCENARIOS};
#define SCENARIOS_COUNT (sizeof scenarios / sizeof scenarios[0])

/* A test counts the instructions of these launches. Its argument says where they go: 0 runs without a scheduler, 1 uses
 * a client's default stream, 2 uses a stream that a client made, 3 is 1 beside a client that has blocking streams. */
static CUstream counted;
static void makes_blocking_streams(void)
{
    CUstream stream;
    for (int i = 0; i < 100; i++) {
        DONE(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
        launch(stream, 0);
    }
    DONE(cuCtxSynchronize());
}
static void launches(void)
{
    for (int i = 0; i < 20000; i++) launch(counted, 0);
    DONE(cuStreamSynchronize(counted));
}
static void cost(const char *where)
{
    int client = where[0] == '0' ? -1 : where[0] == '3'; /* the last client is hp */
    if (client >= 0) CHECK(start(client + 1) == 0);
    if (where[0] == '2') counted = stream_of(0);
    if (where[0] == '3') all_of(BE, makes_blocking_streams);
    all_of(client, launches);
}

int main(int count, char **arguments)
{
    CHECK(count > 1);
    if (strcmp(arguments[1], "list") == 0) {
        for (unsigned i = 0; i < SCENARIOS_COUNT; i++) puts(scenarios[i].name);
        return 0;
    }
    look_up();
    initialise();
    if (strcmp(arguments[1], "cost") == 0) return cost(arguments[2]), 0;
    for (unsigned i = 0; i < SCENARIOS_COUNT; i++)
        if (strcmp(arguments[1], scenarios[i].name) == 0) return scenarios[i].body(), 0;
    CHECK(!"such a scenario");
}
