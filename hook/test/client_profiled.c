/* A CUDA program whose kernels standard input lists, for tests of the profiler with the fake CUPTI. As the real driver
 * does in cuInit, it loads CUDA_INJECTION64_PATH and calls its InitializeInjection.
 *
 *   kernel NAME GX GY GZ BX BY BZ STATIC DYNAMIC REGISTERS NS COUNT [DEVICE]   COUNT launches of NS nanoseconds each
 *   running NAME            one launch that has not ended
 *   drop COUNT              records that CUPTI dropped for lack of space
 *   spawn                   this program again as a child: one launch of child_kernel
 *   fork                    a child that ends by exit() and uses no CUDA
 *   exit STATUS, _exit STATUS
 *
 * It answers each with "ok". */
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
