#include "agent/known_limit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "system/environment.h"

static uint64_t read_from(int fd)
{
    char text[24], *end;
    ssize_t length = read(fd, text, sizeof text - 1);
    if (length <= 0 || text[0] < '0' || text[0] > '9') return 0;
    text[length] = '\0';
    uint64_t limit = strtoull(text, &end, 10);
    return *end == '\n' ? limit : 0;
}

uint64_t orion_known_limit(const char *uuid)
{
    char directory[ORION_PATH_LONGEST], path[ORION_PATH_LONGEST + sizeof "/memory-limit"];
    if (!orion_agent_directory(uuid, directory)) return 0;
    snprintf(path, sizeof path, "%s/memory-limit", directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    uint64_t limit = read_from(fd);
    close(fd);
    return limit;
}
