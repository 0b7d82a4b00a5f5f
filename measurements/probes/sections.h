/* What probes with several sections share: lines of JSON, words in memory that several processes share, and sections that
 * end in time. */
#ifndef PROBES_SECTIONS_H
#define PROBES_SECTIONS_H

#include "spinning.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_US 5e6

static bool simulated;          /* the driver is the simulated one: its kernels store nothing */
static volatile uint32_t *page; /* words in a file in /dev/shm, shared with the process that watches this one; 0: open */
static const char *section = "?";

/* -- Output ---------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static inline void emit(const char *format, ...)
{
    va_list values;
    char line[16384];
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    printf("{\"section\": \"%s\", %s}\n", section, line);
    fflush(stdout);
}

__attribute__((format(printf, 1, 2))) static inline void progress(const char *format, ...)
{
    va_list values;
    fprintf(stderr, "%s: ", section);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
}

static inline const char *name_of(CUresult result)
{
    const char *name = NULL;
    return cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "unknown";
}

static inline int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void sort(double *values, int count) { qsort(values, (size_t)count, sizeof *values, by_size); }

static inline double quantile(const double *sorted, int count, double part)
{
    int at = (int)(part * count);
    return count ? sorted[at < count ? at : count - 1] : 0;
}

/* -- Words ----------------------------------------------------------------------------------------------------------- */

/* Maps one page of a file in /dev/shm, as the hook shares the page of its valve. Before any use of CUDA. */
static inline void map_page(void)
{
    char path[] = "/dev/shm/probe-XXXXXX";
    int file = mkstemp(path);
    if (file < 0 || ftruncate(file, 4096)) perror(path), exit(1);
    unlink(path);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED) perror("page"), exit(1);
}

static inline uint32_t get(int at) { return __atomic_load_n(&page[at], __ATOMIC_SEQ_CST); }
static inline void put(int at, uint32_t value) { __atomic_store_n(&page[at], value, __ATOMIC_SEQ_CST); }

static inline void await(int at, uint32_t value)
{
    while (get(at) != value) usleep(200);
}

static inline void set_word(uint32_t value) { put(0, value); }

static inline void *pinned(size_t bytes, CUdeviceptr *address)
{
    void *memory;
    must(cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP), "pinned memory");
    must(cuMemHostGetDevicePointer(address, memory, 0), "address");
    memset(memory, 0, bytes);
    return memory;
}

/* A green context of about so many SMs. *all, *part: the SMs of the GPU and those of the green context. */
static inline CUgreenCtx green_of(unsigned wanted, CUdevResource *all, CUdevResource *part)
{
    CUdevResource rest;
    CUdevResourceDesc description;
    CUgreenCtx made;
    unsigned parts = 1;
    must(cuDeviceGetDevResource(device, all, CU_DEV_RESOURCE_TYPE_SM), "resource");
    must(cuDevSmResourceSplitByCount(part, &parts, all, &rest, 0, wanted), "split");
    must(cuDevResourceGenerateDesc(&description, part, 1), "description");
    must(cuGreenCtxCreate(&made, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "green context");
    return made;
}

/* -- Processes and sections ------------------------------------------------------------------------------------------ */

static inline pid_t start_process(void (*function)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        function();
        _exit(0);
    }
    return child;
}

static inline void clear_page(void)
{
    for (int i = 0; i < 64; i++) put(i, 0);
}

struct section {
    const char *letter; /* longer than one letter: the section always runs */
    void (*run)(void);
    void (*start)(void); /* what `run` needs, such as CUDA; NULL: `run` starts processes first */
    int seconds;
};

static inline void run_section(const struct section *chosen)
{
    setpgid(0, 0); /* so that the limit ends the processes that the section starts, too */
    if (chosen->start) chosen->start();
    chosen->run();
    fflush(stdout);
    _exit(0);
}

/* Runs the section in a process of its own, and ends it at its limit. */
static inline void supervise(const struct section *chosen)
{
    clear_page();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) run_section(chosen);
    setpgid(child, child);
    double begun = now_us(), limit = chosen->seconds * 1e6;
    int status = 0;
    bool late = false, killed = false;
    while (waitpid(child, &status, WNOHANG) == 0) {
        double now = now_us() - begun;
        late = late || now > limit;
        if (now > limit) set_word(0); /* again and again: the section may close the word once more */
        if (now > limit + GRACE_US && !killed) kill(-child, SIGKILL), killed = true;
        usleep(1000);
    }
    kill(-child, SIGKILL); /* what the section has left behind */
    set_word(0);
    emit("\"ended\": %s, \"status\": %d, \"signal\": %d, \"seconds\": %.1f", late ? "\"by its limit\"" : "true",
         WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0, (now_us() - begun) / 1e6);
}

static inline int run_sections(const struct section *sections, size_t count, const char *wanted)
{
    map_page();
    for (size_t i = 0; i < count; i++) {
        section = sections[i].letter;
        if (section[1] || strchr(wanted, section[0])) supervise(&sections[i]);
    }
    return 0;
}

#endif
