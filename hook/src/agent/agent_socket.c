#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif

#include "agent/agent_socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "system/environment.h"

#define ROOT "/run/orion"

bool orion_agent_directory(const char *gpu, char *directory)
{
    const char *root = orion_environment()->root;
    int length = snprintf(directory, ORION_PATH_LONGEST, "%s/slots/%s", root[0] != '\0' ? root : ROOT, gpu);
    return length >= 0 && (size_t)length < ORION_PATH_LONGEST;
}

bool orion_agent_gave_slots(void)
{
    char path[ORION_PATH_LONGEST];
    DIR *slots = orion_agent_directory("", path) ? opendir(path) : NULL;
    bool found = false;
    for (struct dirent *entry; slots != NULL && !found && (entry = readdir(slots)) != NULL;) found = entry->d_name[0] != '.';
    if (slots != NULL) closedir(slots);
    return found;
}

struct place {
    struct sockaddr_un address;
    int folder; /* -1: the address does not need it */
};

/* If a path is too long for sun_path, this opens its directory, and the address leads through /proc. It names thread-self,
 * because the calling thread may have its own descriptor table. */
static bool find(struct place *place, const char *gpu, const char *name)
{
    char directory[ORION_PATH_LONGEST], *path = place->address.sun_path;
    *place = (struct place){.address.sun_family = AF_UNIX, .folder = -1};
    if (!orion_agent_directory(gpu, directory)) {
        errno = ENAMETOOLONG;
        return false;
    }
    int length = snprintf(path, sizeof place->address.sun_path, "%s/%s", directory, name);
    if (length >= 0 && (size_t)length < sizeof place->address.sun_path) return true;
    place->folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof place->address.sun_path, "/proc/thread-self/fd/%d/%s", place->folder, name);
    return place->folder >= 0;
}

static void leave(const struct place *place, int fd)
{
    int kept = errno;
    if (place->folder >= 0) close(place->folder);
    if (fd >= 0) close(fd);
    errno = kept;
}

int orion_agent_connect(const char *gpu)
{
    struct place place;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    bool found = find(&place, gpu, "agent.sock");
    bool connected = found && connect(fd, (struct sockaddr *)&place.address, sizeof place.address) == 0;
    leave(&place, connected ? -1 : fd);
    return connected ? fd : -1;
}

static bool post(const char *gpu, const void *message, size_t size)
{
    struct place place;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool found = find(&place, gpu, "notices.sock");
    const struct sockaddr *address = (struct sockaddr *)&place.address;
    bool sent = found && sendto(fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT, address, sizeof place.address) >= 0;
    leave(&place, fd);
    return sent;
}

void orion_agent_tell(const char *gpu, const void *message, size_t size)
{
    int kept = errno, fd = post(gpu, message, size) ? -1 : orion_agent_connect(gpu);
    if (fd >= 0) {
        send(fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    }
    errno = kept;
}
