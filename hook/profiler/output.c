#include "output.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "devices.h"

void profiler_output_open(struct profiler_output *output, const char *folder, uint64_t launches)
{
    struct timespec now; /* exec keeps the process id, so only the time distinguishes the two programs' files */
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    int pid = getpid();
    snprintf(output->process, sizeof output->process, "%s/process-%d-%" PRIu64 ".jsonl", folder, pid, time);
    snprintf(output->replacement, sizeof output->replacement, "%s.new", output->process);
    snprintf(output->launches, sizeof output->launches, "%s/launches-%d-%" PRIu64 ".csv", folder, pid, time);
    output->launches_left = launches;
}

static void write_text(FILE *file, const char *text)
{
    putc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') putc('\\', file);
        if ((unsigned char)*text < 0x20) fprintf(file, "\\u%04x", (unsigned)*text);
        else putc(*text, file);
    }
    putc('"', file);
}

static void write_process(FILE *file, const struct profiler_kernels *kernels, const struct profiler_state *state)
{
    char command[256] = "";
    FILE *name = fopen("/proc/self/comm", "re");
    if (name != NULL) {
        if (fscanf(name, "%255[^\n]", command) != 1) command[0] = '\0';
        fclose(name);
    }
    fprintf(file, "{\"record\":\"process\",\"version\":1,\"pid\":%d,\"command\":", getpid());
    write_text(file, command);
    fprintf(file,
            ",\"records\":%" PRIu64 ",\"dropped\":%" PRIu64 ",\"unplaced\":%" PRIu64 ",\"unplaced_ns\":%" PRIu64
            ",\"ended\":%s,\"failure\":",
            kernels->records, state->dropped, kernels->unplaced, kernels->unplaced_ns, state->ended ? "true" : "false");
    if (state->failure != NULL) write_text(file, state->failure);
    else fputs("null", file);
    fputs("}\n", file);
}

static void write_device(FILE *file, uint32_t number)
{
    const struct profiler_device *device = profiler_device(number);
    if (device == NULL) return;
    fprintf(file, "{\"record\":\"device\",\"device\":%u,\"model\":", number);
    write_text(file, device->model);
    for (unsigned i = 0; i < PROFILER_LIMITS; i++) fprintf(file, ",\"%s\":%d", profiler_limits[i].name, device->limits[i]);
    fputs("}\n", file);
}

static void write_kernel(FILE *file, uint32_t index, const struct profiler_kernel *kernel)
{
    const char *separator = "";
    fprintf(file, "{\"record\":\"kernel\",\"index\":%u,\"name\":", index);
    write_text(file, kernel->name);
    fprintf(file, ",\"grid\":[%d,%d,%d],\"block\":[%d,%d,%d]", kernel->grid[0], kernel->grid[1], kernel->grid[2], kernel->block[0],
            kernel->block[1], kernel->block[2]);
    fprintf(file, ",\"static_shared\":%d,\"dynamic_shared\":%d,\"registers\":%u,\"device\":%u", kernel->static_shared,
            kernel->dynamic_shared, kernel->registers, kernel->device);
    fprintf(file, ",\"launches\":%" PRIu64 ",\"timed\":%" PRIu64 ",\"total_ns\":%" PRIu64, kernel->launches, kernel->timed,
            kernel->total_ns);
    fprintf(file, ",\"shortest_ns\":%" PRIu64 ",\"longest_ns\":%" PRIu64 ",\"histogram\":[",
            kernel->timed != 0 ? kernel->shortest_ns : 0, kernel->longest_ns);
    for (uint32_t i = 0; i < PROFILER_BUCKETS; i++) { /* the bucket's start, its end, its count */
        if (kernel->buckets[i] == 0) continue;
        fprintf(file, "%s[%" PRIu64 ",%" PRIu64 ",%u]", separator, i == 0 ? 0 : profiler_bucket_begin(i),
                profiler_bucket_begin(i + 1), kernel->buckets[i]);
        separator = ",";
    }
    fputs("]}\n", file);
}

static void append_launches(struct profiler_output *output)
{
    if (output->pending == 0) return;
    int fd = open(output->launches, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, output->text, output->pending) < 0) output->launches_left = 0;
    if (fd >= 0) close(fd);
    output->pending = 0;
}

void profiler_output_launch(struct profiler_output *output, const struct cupti_kernel *record, uint32_t kernel)
{
    if (output->launches_left == 0 || kernel == PROFILER_KERNELS || record->start == 0) return;
    output->launches_left--;
    if (output->pending + 96 > sizeof output->text) append_launches(output);
    output->pending += (uint32_t)snprintf(output->text + output->pending, 96, "%u,%" PRIu64 ",%" PRIu64 ",%u\n",
                                          record->correlation, record->start, record->end - record->start, kernel);
}

void profiler_output_write(struct profiler_output *output, const struct profiler_kernels *kernels,
                           const struct profiler_state *state)
{
    append_launches(output);
    FILE *file = fopen(output->replacement, "we");
    if (file == NULL) return;
    write_process(file, kernels, state);
    for (uint32_t i = 0; i < PROFILER_DEVICES; i++) write_device(file, i);
    for (uint32_t i = 0; i < kernels->count; i++) write_kernel(file, i, &kernels->kernels[i]);
    bool written = ferror(file) == 0;
    written &= fclose(file) == 0;
    if (written) rename(output->replacement, output->process);
}
