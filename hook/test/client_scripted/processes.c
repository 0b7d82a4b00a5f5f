/* Commands for what a process does besides CUDA calls: host memory, child processes, exec, descriptors, exit. */
#include "scripted.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

double touch(const struct arguments *at)
{
    size_t bytes = (size_t)(at->a * 1073741824.0);
    char *memory = malloc(bytes);
    for (size_t i = 0; memory != NULL && i < bytes; i += 4096) memory[i] = 1;
    return memory == NULL;
}

double move_root(const struct arguments *at)
{
    (void)at;
    return setenv("ORION_ROOT", "/nonexistent", 1);
}

double forks(const struct arguments *at)
{
    pid_t child = fork();
    if (child != 0) return child;
    sleep((unsigned)at->a);
    _exit(0);
}

static double status_of(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

double fork_and_launch(const struct arguments *at)
{
    pid_t child = fork();
    (void)at;
    if (child == 0) _exit((int)launch(1, 0) & 0xff);
    return status_of(child);
}

double spawn(const struct arguments *at)
{
    int script[2];
    (void)at;
    if (pipe(script) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(script[0], 0);
        dup2(open("/dev/null", O_WRONLY), 1); /* the child's answers must not mix with ours */
        for (int fd = 3; fd < 64; fd++) close(fd);
        execl("/proc/self/exe", "client_spawned", (char *)NULL);
        _exit(127);
    }
    const char text[] = "init 0\nlaunch 3 10\nsync\n_exit\n";
    ssize_t written = write(script[1], text, sizeof text - 1);
    close(script[0]);
    close(script[1]);
    return written < 0 ? -1 : status_of(child);
}

double replace(const struct arguments *at)
{
    (void)at;
    printf("ok exec 0 0 0\n");
    fflush(stdout);
    execl("/proc/self/exe", "client_replaced", (char *)NULL);
    _exit(127);
}

double open_and_close(const struct arguments *at)
{
    (void)at;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL || dlsym(driver, "cuLaunchKernel") == NULL) return -1;
    return dlclose(driver);
}

double close_descriptors(const struct arguments *at)
{
    (void)at;
    for (int fd = 3; fd < 1024; fd++) close(fd);
    return 0;
}

/* The least limit that the driver's own threads bear, so that few are opened. */
double use_descriptors(const struct arguments *at)
{
    struct rlimit most;
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = (rlim_t)at->a;
    if (setrlimit(RLIMIT_NOFILE, &most) != 0) return -1;
    int opened = 0;
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) opened++;
    return errno == EMFILE ? opened : -1;
}

double leave(const struct arguments *at)
{
    (void)at;
    exit(0);
}
double leave_at_once(const struct arguments *at)
{
    (void)at;
    _exit(0);
}

/* Looks up a function that only a newer driver has, and calls it. */
double future(const struct arguments *at)
{
    void *found = NULL;
    uint64_t microseconds = 10;
    uint32_t sms = 1;
    void *parameters[] = {&microseconds, &sms};
    const char *name = "cuLaunchOfTheFuture";
    if (at->a > 0) found = dlsym(RTLD_DEFAULT, name);
    else if (cuGetProcAddress(name, &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, NULL) != CUDA_SUCCESS) return -1;
    CUresult(CUDAAPI * call)(CUfunction, CUstream, void **);
    memcpy(&call, &found, sizeof call);
    if (call == NULL) return -1;
    CUresult result = call(used->timed, NULL, parameters);
    return result != CUDA_SUCCESS ? result : cuCtxSynchronize();
}
