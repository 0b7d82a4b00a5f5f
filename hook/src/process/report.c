#include "process/report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "process/process.h"
#include "system/standard_error.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static const char *const words[ORION_SENTENCES] = {
    [ORION_SAY_NO_AGENT] = "no node agent answers for this GPU; this process runs unmanaged and joins when there is one",
    [ORION_SAY_REFUSED] = "the node agent refused this process, which runs unmanaged",
    [ORION_SAY_GIVEN_UP] = "a high-priority process is busy without completing anything; this process no longer waits for it",
    [ORION_SAY_UNKNOWN] = "this hook does not know a driver function and passes its calls through unmanaged; update Orion",
    [ORION_SAY_PAGES] = "the node agent's answer is not understood; this process runs unmanaged",
    [ORION_SAY_POLICY] = "this hook does not know the policy of this GPU and applies `gate` instead; update the hook",
    [ORION_SAY_WHOLE_GRAPH] =
        "a CUDA graph of this process cannot be stopped in between, so a high-priority process may wait for it",
    [ORION_SAY_PARKED] = "others need the GPU's memory, so this process has left it and waits; it goes on when there is room again",
    [ORION_SAY_LOST] = "the driver could not bring this process back: its CUDA calls fail or hang from now on; start it again",
    [ORION_SAY_ORDER] =
        "a launch has waited too long for work that it must follow, and no longer waits; results of this process may be wrong",
    [ORION_SAY_DESCRIPTORS] =
        "no file descriptor is free to ask the node agent for memory, so this process gets no more of its limit; raise `ulimit -n`",
};

static _Thread_local bool another_table;
void orion_report_from_another_table(void) { another_table = true; }

/* Copies descriptor 2 of the main thread's table. The caller closes the copy after writing: a copy that
 * stays open would keep a pipe open that the program has closed. If the kernel or the sandbox does not allow
 * pidfd_getfd, this function opens the file again; that is impossible for a socket. */
static int borrow_standard_error(void)
{
    int process = (int)syscall(SYS_pidfd_open, getpid(), 0u);
    int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0u);
    if (process >= 0) close(process);
    if (fd >= 0) return fd;
    fd = open("/proc/self/fd/2", O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && orion_is_standard_error(fd)) fcntl(fd, F_SETFL, O_APPEND); /* not before: it would make any file a log */
    return fd;
}

/* Never blocks and never ends the process by SIGPIPE. If the pipe is full or has no reader, this writes nothing. */
static void write_to(int fd, const struct iovec *parts, int count)
{
    struct pollfd out = {.fd = fd, .events = POLLOUT};
    if (fd < 0 || !orion_is_standard_error(fd) || poll(&out, 1, 0) != 1 || out.revents != POLLOUT) return;
    sigset_t pipe_signal, before;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    if (writev(fd, parts, count) < 0 && errno == EPIPE) sigtimedwait(&pipe_signal, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void orion_say_once_about(struct orion_process *process, enum orion_sentence sentence, const char *what)
{
    uint32_t bit = UINT32_C(1) << sentence;
    if (atomic_fetch_or(&process->said, bit) & bit) return;
    int kept = errno;
    const struct iovec parts[] = {
        {(void *)(uintptr_t)"orion: ", 7},
        {(void *)(uintptr_t)words[sentence], strlen(words[sentence])},
        {(void *)(uintptr_t)": ", what[0] != '\0' ? 2 : 0},
        {(void *)(uintptr_t)what, strnlen(what, 112)},
        {(void *)(uintptr_t)"\n", 1},
    };
    int fd = another_table ? borrow_standard_error() : STDERR_FILENO;
    write_to(fd, parts, 5);
    if (another_table && fd >= 0) close(fd);
    errno = kept;
}

void orion_say_once(struct orion_process *process, enum orion_sentence sentence) { orion_say_once_about(process, sentence, ""); }
