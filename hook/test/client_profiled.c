/* A CUDA program that reads commands from standard input. It tests the profiler with the fake CUPTI. The fake driver
 * does not load the profiler, so after cuInit this program loads the library CUDA_INJECTION64_PATH and calls its
 * InitializeInjection, as the real driver does.
 *
 *   kernel NAME GX GY GZ BX BY BZ STATIC DYNAMIC REGISTERS NS COUNT [DEVICE]
 *                           COUNT launches of NS nanoseconds each; grid G, block B; STATIC, DYNAMIC: shared memory, bytes
 *   running NAME            one launch, not yet ended, of a kernel named "running"; NAME is ignored
 *   drop COUNT              CUPTI reports that it dropped COUNT records for lack of space
 *   spawn                   runs this program as a child, which launches child_kernel once
 *   fork                    forks a child that calls exit() and does not use CUDA
 *   exit STATUS             ends the process, with exit handlers
 *   _exit STATUS            ends the process, without exit handlers
 *
 * The program prints "ok" after each command but the last two. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../profiler/cupti.h"

static void (*run)(const struct cupti_kernel *);
static void (*drop)(size_t);
static uint32_t correlation;
static uint64_t now = 1000000;

static void inject(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path != NULL ? dlopen(path, RTLD_NOW) : NULL, *cupti;
    if (library == NULL) return;
    int (*initialise)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    if (initialise != NULL) initialise();
    if ((cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD)) == NULL) return;
    run = (void (*)(const struct cupti_kernel *))dlsym(cupti, "fake_cupti_kernel");
    drop = (void (*)(size_t))dlsym(cupti, "fake_cupti_drop");
}

static void launch(const struct cupti_kernel *like, uint64_t nanoseconds, long count)
{
    struct cupti_kernel kernel = *like;
    for (long i = 0; run != NULL && i < count; i++) {
        kernel.correlation = ++correlation;
        kernel.start = now;
        kernel.end = nanoseconds != 0 ? now + nanoseconds : 0;
        if (nanoseconds == 0) kernel.start = 0;
        now += nanoseconds + 1000;
        run(&kernel);
    }
}

static void kernel_line(const char *line)
{
    char name[1024];
    struct cupti_kernel kernel = {.kind = CUPTI_KIND_CONCURRENT_KERNEL};
    unsigned registers = 0;
    unsigned long long nanoseconds = 0;
    long count = 1;
    sscanf(line, "%*s %1023s %d %d %d %d %d %d %d %d %u %llu %ld %u", name, &kernel.grid[0], &kernel.grid[1], &kernel.grid[2],
           &kernel.block[0], &kernel.block[1], &kernel.block[2], &kernel.static_shared, &kernel.dynamic_shared, &registers,
           &nanoseconds, &count, &kernel.device);
    kernel.registers = (uint16_t)registers;
    kernel.name = strdup(name);
    launch(&kernel, nanoseconds, count);
}

static void child(int again)
{
    int status;
    pid_t process = fork();
    if (process == 0 && again) execl("/proc/self/exe", "client_profiled", "child", (char *)NULL);
    if (process == 0) exit(0);
    waitpid(process, &status, 0);
}

int main(int count, char **arguments)
{
    (void)arguments;
    char line[2048];
    if (cuInit(0) != CUDA_SUCCESS) return 9;
    inject();
    if (count > 1) {
        kernel_line("kernel child_kernel 1 1 1 32 1 1 0 0 16 2000 1");
        return 0;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char word[16] = "";
        long number = 0;
        sscanf(line, "%15s %ld", word, &number);
        if (!strcmp(word, "kernel")) kernel_line(line);
        else if (!strcmp(word, "running")) kernel_line("kernel running 1 1 1 32 1 1 0 0 16 0 1");
        else if (!strcmp(word, "drop") && drop != NULL) drop((size_t)number);
        else if (!strcmp(word, "spawn")) child(1);
        else if (!strcmp(word, "fork")) child(0);
        else if (!strcmp(word, "exit")) exit((int)number);
        else if (!strcmp(word, "_exit")) _exit((int)number);
        puts("ok");
        fflush(stdout);
    }
    return 0;
}
