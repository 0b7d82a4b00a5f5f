/* The timeline (see trace.h). A piece is a span of time in which one kernel ran without a break. The process that
 * advances the machine writes each piece into a ring in the shared state. Each process reads its own pieces from the
 * ring and appends them to the file that ORION_SIM_TRACE names, one line per piece: `pid start_ns end_ns kind name`.
 *
 * A process loses pieces if the ring wraps around before its keeper thread reads them. The keeper reads every 20 ms. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "state.h"
#include "trace.h"

#define PORTION 256 /* pieces taken at a time */

/* Copied at cuInit: the keeper must not read the environment, which the program may change at any time. */
static char path[4096];

void sim_trace_choose(void)
{
    const char *named = getenv("ORION_SIM_TRACE");
    if (named && strlen(named) < sizeof path) strcpy(path, named);
}

bool sim_trace_wanted(void) { return path[0] != '\0'; }

void sim_trace_piece(struct sim_state *state, uint64_t stream, uint64_t start_ns, uint64_t label)
{
    uint64_t client = state->contexts[state->streams[stream].context].client;
    if (!state->clients[client].trace || start_ns == state->now_ns) return;
    state->trace[state->trace_head % SIM_TRACE] = (struct sim_piece){client, start_ns, state->now_ns, label};
    SIM_PUT(state->trace_head, state->trace_head + 1);
}

/* The labels of this process, each text once. They live until the process ends, because pieces may point to them. */
struct label {
    struct label *next;
    char text[];
};

static struct label *labels;
static pthread_mutex_t label_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct label *label_of(const char *text)
{
    struct label *label = labels;
    while (label && strcmp(label->text, text)) label = label->next;
    if (!label && (label = malloc(sizeof *label + strlen(text) + 1))) {
        strcpy(label->text, text);
        label->next = labels;
        labels = label;
    }
    return label;
}

uint64_t sim_trace_label(const char *kind, const char *name)
{
    char text[256];
    snprintf(text, sizeof text, "%s %s", kind, name);
    pthread_mutex_lock(&label_mutex);
    struct label *label = label_of(text);
    pthread_mutex_unlock(&label_mutex);
    return label ? (uint64_t)(uintptr_t)label->text : 0;
}

/* Copies up to PORTION pieces of this process from the ring, and moves `*at` behind the last piece that was read. */
static int take(struct sim_piece *pieces, uint64_t *at)
{
    int count;
    uint64_t next;
    sim_enter();
    const struct sim_state *state = sim_state();
    uint64_t own = sim_own_client_number();
    count = 0;
    next = state->trace_head - *at > SIM_TRACE ? state->trace_head - SIM_TRACE : *at;
    for (; next < state->trace_head && count < PORTION; next++)
        if (state->trace[next % SIM_TRACE].client == own) pieces[count++] = state->trace[next % SIM_TRACE];
    sim_leave();
    *at = next;
    return count;
}

static void append(int file, const struct sim_piece *pieces, int count)
{
    char text[PORTION * 40];
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        const char *label = (const char *)(uintptr_t)pieces[i].name;
        char line[320];
        int length = snprintf(line, sizeof line, "%d %llu %llu %.200s\n", (int)getpid(), (unsigned long long)pieces[i].start_ns,
                              (unsigned long long)pieces[i].end_ns, label ? label : "kernel ?");
        if (used + (size_t)length > sizeof text) {
            if (write(file, text, used) < 0) return;
            used = 0;
        }
        memcpy(text + used, line, (size_t)length);
        used += (size_t)length;
    }
    if (used && write(file, text, used) < 0) return;
}

void sim_trace_drain(void)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t at;
    static bool begun;
    if (!sim_trace_wanted() || sim_trace_begin() == SIM_NEVER) return;
    pthread_mutex_lock(&one);
    struct sim_piece pieces[PORTION];
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int count = PORTION;
    if (!begun) /* skip the pieces of an earlier client that had our index: their names are in its memory */
        at = sim_trace_begin();
    begun = true;
    while (file >= 0 && count == PORTION) {
        count = take(pieces, &at);
        append(file, pieces, count);
    }
    if (file >= 0) close(file);
    pthread_mutex_unlock(&one);
}
