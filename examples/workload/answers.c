/* Implements answers.h. Handles one request at a time. A connection is accepted once its request has arrived, or after
 * SILENT_S. Reading and writing have a limit of 1 s. */
#include "answers.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENT_S 10

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `latest` */
static char latest[512] = "{\"event\":\"ready\"}\n";

void answers_say(const char *line)
{
    pthread_mutex_lock(&lock);
    snprintf(latest, sizeof latest, "%s", line);
    pthread_mutex_unlock(&lock);
}

int answers_accept(int listener, int milliseconds)
{
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    struct timeval limit = {.tv_sec = 1};
    char request[4096];
    int client = poll(&waiting, 1, milliseconds) > 0 ? accept(listener, NULL, NULL) : -1;
    if (client < 0) return -1;
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (recv(client, request, sizeof request, 0) > 0) return client; /* the answer does not depend on the request */
    close(client);
    return -1;
}

void answers_reply(int client)
{
    char reply[sizeof latest + 128];
    pthread_mutex_lock(&lock);
    int length = snprintf(reply, sizeof reply,
                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                          "Connection: close\r\n\r\n%s",
                          strlen(latest), latest);
    pthread_mutex_unlock(&lock);
    send(client, reply, (size_t)length, MSG_NOSIGNAL);
    close(client);
}

static void *run(void *listener)
{
    for (;;) {
        int client = answers_accept((int)(intptr_t)listener, 100);
        if (client >= 0) answers_reply(client);
    }
    return NULL;
}

int answers_listen(int port)
{
    int yes = 1, listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    bool bound = listener >= 0 && !setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
                 !bind(listener, (struct sockaddr *)&six, sizeof six);
    if (!bound) { /* this machine has no IPv6 */
        if (listener >= 0) close(listener);
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bound = listener >= 0 && !setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
                !bind(listener, (struct sockaddr *)&four, sizeof four);
    }
    if (!bound || listen(listener, 128)) return -1;
    setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &(int){SILENT_S}, sizeof(int));
    return listener;
}

bool answers_begin(int listener)
{
    pthread_t thread;
    return !pthread_create(&thread, NULL, run, (void *)(intptr_t)listener);
}
