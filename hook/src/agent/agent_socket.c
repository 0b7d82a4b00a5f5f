#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif

#include "agent/agent_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "system/environment.h"

#define ROOT "/run/orion"

/* If a path is too long for sun_path, this opens its directory and connects through /proc. The path names thread-self,
 * because the calling thread may have its own descriptor table. */
static int connect_through_directory(int socket_fd, const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/thread-self/fd/%d/agent.sock", folder);
    int result = connect(socket_fd, (struct sockaddr *)&address, sizeof address);
    int kept = errno;
    close(folder);
    errno = kept;
    return result;
}

bool orion_agent_directory(const char *gpu, char *directory)
{
    const char *root = orion_environment()->root;
    int length = snprintf(directory, ORION_PATH_LONGEST, "%s/slots/%s", root[0] != '\0' ? root : ROOT, gpu);
    return length >= 0 && (size_t)length < ORION_PATH_LONGEST;
}

int orion_agent_connect(const char *gpu)
{
    char directory[ORION_PATH_LONGEST];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!orion_agent_directory(gpu, directory)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    size_t length = strlen(directory);
    int result;
    if (length + sizeof "/agent.sock" <= sizeof address.sun_path) {
        memcpy(address.sun_path, directory, length);
        memcpy(address.sun_path + length, "/agent.sock", sizeof "/agent.sock");
        result = connect(fd, (struct sockaddr *)&address, sizeof address);
    } else {
        result = connect_through_directory(fd, directory);
    }
    if (result == 0) return fd;
    int kept = errno;
    close(fd);
    errno = kept;
    return -1;
}

void orion_agent_tell(const char *gpu, const void *message, size_t size)
{
    int kept = errno;
    int fd = orion_agent_connect(gpu);
    if (fd >= 0) {
        send(fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    }
    errno = kept;
}
