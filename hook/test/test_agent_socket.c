/* What needs no answer goes to the agent as a datagram, and on a connection if the agent has no socket for datagrams. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "orion/join.h"
#include "system/environment.h"

#define GPU "GPU-0"
#define LONG_NAME "a-name-with-which-the-path-of-the-socket-is-longer-than-an-address-of-a-socket-may-be-on-this-system"

static const struct orion_turn turn = {.head = {ORION_MESSAGE_MAGIC, ORION_TURN}, .wish = ORION_TURN_WANTED};

static int bound(const char *name, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(snprintf(address.sun_path, sizeof address.sun_path, "%s", name) < (int)sizeof address.sun_path);
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static bool has_turn(int fd)
{
    char message[64];
    return recv(fd, message, sizeof message, MSG_DONTWAIT) == sizeof turn && memcmp(message, &turn, sizeof turn) == 0;
}

static bool came_on_a_connection(int listening)
{
    int fd = accept(listening, NULL, NULL);
    bool came = fd >= 0 && has_turn(fd);
    if (fd >= 0) close(fd);
    return came;
}

static void in(const char *directory) { CHECK(mkdir(directory, 0700) == 0 && chdir(directory) == 0); }

static void leave(const char *directory) { CHECK(chdir("..") == 0 && rmdir(directory) == 0); }

int main(int argc, char **argv)
{
    char root[64 + sizeof LONG_NAME], template[] = "/tmp/orion-socket-XXXXXX";
    if (argc < 3) { /* the hook reads ORION_ROOT when the program starts */
        const char *folder = mkdtemp(template);
        CHECK(folder != NULL);
        snprintf(root, sizeof root, "%s%s", folder, argc < 2 ? "" : "/" LONG_NAME);
        CHECK(setenv("ORION_ROOT", root, 1) == 0);
        execl("/proc/self/exe", argv[0], folder, argc < 2 ? "short" : "long", (char *)NULL);
        return 1;
    }
    bool is_long = strcmp(argv[2], "long") == 0;
    CHECK(chdir(argv[1]) == 0);
    if (is_long) in(LONG_NAME);
    in("slots");
    in(GPU);
    int listening = bound("agent.sock", SOCK_SEQPACKET);
    CHECK(listen(listening, 8) == 0);
    errno = 0;

    orion_agent_tell(GPU, &turn, sizeof turn);
    CHECK(came_on_a_connection(listening)); /* an older agent */

    int notices = bound("notices.sock", SOCK_DGRAM);
    orion_agent_tell(GPU, &turn, sizeof turn);
    CHECK(has_turn(notices) && !came_on_a_connection(listening));

    close(notices); /* an agent that has ended */
    errno = 0;
    orion_agent_tell(GPU, &turn, sizeof turn);
    CHECK(errno == 0);
    CHECK(came_on_a_connection(listening));

    close(listening);
    CHECK(unlink("notices.sock") == 0 && unlink("agent.sock") == 0);
    leave(GPU);
    leave("slots");
    if (is_long) leave(LONG_NAME);
    CHECK(rmdir(argv[1]) == 0);
    if (!is_long) execl("/proc/self/exe", argv[0], "again", (char *)NULL);
    puts("agent socket: ok");
    return 0;
}
