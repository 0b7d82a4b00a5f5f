/* orion-await-agent SECONDS FOLDER...: waits until the node's agent answers on the socket in each folder.
 *
 * A container runtime runs this program before each start of a container whose pod must not run without an agent: it is a
 * createRuntime hook in the CDI file of the pod's claim (dra_driver/holding.py). The folders are those of the container's
 * slots. Exit status 0: the agent answers, so the container's processes can join. 1: it has not answered in time, and the
 * runtime reports the sentence on stderr and does not start the container.
 *
 * The agent must answer a message: the kernel accepts connections also for an agent that is stopped or hangs. A HELLO for
 * no layout at all is that message. Every agent refuses it, and no client is made.
 *
 * The program needs nothing but the kernel (system_calls.h), and keeps no state: whoever kills it leaves nothing behind.
 *
 * Rejected: the agent's administrative socket, as its protocol is HTTP/2 and Protobuf. Rejected: a file that the driver
 * keeps while the agent answers, because it would depend on a living driver. */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <orion/join.h>

#include "system_calls.h"

#define SOCKET_NAME "agent.sock"
#define MILLISECOND 1000000L
#define AGAIN_MS 50   /* between two attempts to connect */
#define STATE_MS 1000 /* the runtime has written the container's state after this time */
#define SECONDS_MOST 86400L

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static struct orion_hello question = {.head = {.magic = ORION_MESSAGE_MAGIC, .type = ORION_HELLO}, .command = "await-agent"};
static char answer[ORION_MESSAGE_MAX];

static long call3(long number, long a, long b, long c) { return orion_call(number, a, b, c, 0, 0, 0); }

static size_t length_of(const char *text)
{
    size_t length = 0;
    while (text[length] != '\0') length++;
    return length;
}

static void say(const char *text) { call3(__NR_write, 2, (long)text, (long)length_of(text)); }

static long now_ms(void)
{
    struct timespec now;
    call3(__NR_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0);
    return now.tv_sec * 1000 + now.tv_nsec / MILLISECOND;
}

/* Waits until `fd` can be read, or for the time alone if `fd` is negative. Returns whether it can be read. */
static int readable(int fd, long milliseconds)
{
    if (milliseconds < 0) return 0;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct timespec wait = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * MILLISECOND};
    return orion_call(__NR_ppoll, (long)&one, 1, (long)&wait, 0, 0, 0) == 1;
}

/* Reads the container's state, which the runtime writes: it may take a closed pipe as a failure of the hook. */
static void read_state(void)
{
    long deadline = now_ms() + STATE_MS;
    while (readable(0, deadline - now_ms()) && call3(__NR_read, 0, (long)answer, sizeof answer) > 0) continue;
}

/* Connects to the socket in a folder; through /proc, as the folder's path may be too long for an address. Returns a
 * descriptor, or a negative errno. */
static int connect_in(const char *folder)
{
    long opened = orion_call(__NR_openat, AT_FDCWD, (long)folder, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 0, 0);
    if (opened < 0) return (int)opened;
    char digits[12], *at = address.sun_path;
    int count = 0;
    for (long left = opened; count == 0 || left > 0; left /= 10) digits[count++] = (char)('0' + left % 10);
    for (const char *each = "/proc/self/fd/"; *each != '\0'; each++) *at++ = *each;
    while (count > 0) *at++ = digits[--count];
    for (const char *each = "/" SOCKET_NAME; *each != '\0'; each++) *at++ = *each;
    *at = '\0';
    long fd = call3(__NR_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    long failed = fd < 0 ? fd : call3(__NR_connect, fd, (long)&address, sizeof address);
    call3(__NR_close, opened, 0, 0);
    if (failed < 0 && fd >= 0) call3(__NR_close, fd, 0, 0);
    return failed < 0 ? (int)failed : (int)fd;
}

/* Asks the agent once. Returns whether it has answered; an agent that ends closes the connection without an answer. */
static int answers(const char *folder, long deadline)
{
    int fd = connect_in(folder);
    if (fd < 0) return 0;
    long sent = orion_call(__NR_sendto, fd, (long)&question, sizeof question, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
    long got = 0;
    if (sent == sizeof question && readable(fd, deadline - now_ms()))
        got = orion_call(__NR_recvfrom, fd, (long)answer, sizeof answer, MSG_DONTWAIT, 0, 0);
    call3(__NR_close, fd, 0, 0);
    return got > 0;
}

/* Returns the seconds, or -1 if the text is not such a number. */
static long seconds_of(const char *text)
{
    long value = 0;
    for (const char *each = text; *each != '\0'; each++) {
        if (*each < '0' || *each > '9' || value > SECONDS_MOST) return -1;
        value = value * 10 + (*each - '0');
    }
    return text[0] == '\0' || value > SECONDS_MOST ? -1 : value;
}

static int await_all(char **folders, long deadline)
{
    for (char **folder = folders; *folder != NULL; folder++) {
        while (!answers(*folder, deadline)) {
            long left = deadline - now_ms();
            if (left <= 0) {
                say("orion: the node's agent does not answer in ");
                say(*folder);
                say(", and this pod must not start without it; the kubelet tries again\n");
                return 1;
            }
            readable(-1, left < AGAIN_MS ? left : AGAIN_MS);
        }
    }
    return 0;
}

/* The entry. `stack` has the number of arguments, the arguments, and NULL. */
__attribute__((used, noreturn)) void orion_await_agent(long *stack)
{
    long began = now_ms();
    char **arguments = (char **)(stack + 1);
    long seconds = stack[0] < 3 ? -1 : seconds_of(arguments[1]);
    int status = 2;
    read_state();
    if (seconds < 0) say("orion: use orion-await-agent SECONDS FOLDER...\n");
    else status = await_all(arguments + 2, began + seconds * 1000);
    for (;;) call3(__NR_exit_group, status, 0, 0);
}

ORION_ENTRY(orion_await_agent);
