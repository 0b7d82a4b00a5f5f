/* Implements answers.h. Handles one request at a time, each with a time limit, so a slow client delays others by 1 s.
 * */
#include "answers.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `latest` */
static char latest[512] = "{\"event\":\"ready\"}\n";

void answers_say(const char *line)
{
    pthread_mutex_lock(&lock);
    snprintf(latest, sizeof latest, "%s", line);
    pthread_mutex_unlock(&lock);
}

static void answer(int client)
{
    struct timeval limit = {.tv_sec = 1};
    char request[4096], reply[sizeof latest + 128];
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (recv(client, request, sizeof request, 0) <= 0) /* the answer does not depend on the request */
        return;
    pthread_mutex_lock(&lock);
    int length = snprintf(reply, sizeof reply,
                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                          "Connection: close\r\n\r\n%s",
                          strlen(latest), latest);
    pthread_mutex_unlock(&lock);
    send(client, reply, (size_t)length, MSG_NOSIGNAL);
}

static void *run(void *listener)
{
    for (;;) {
        int client = accept((int)(intptr_t)listener, NULL, NULL);
        if (client < 0) {
            usleep(100000); /* such as no free file descriptor, which may be temporary */
            continue;
        }
        answer(client);
        close(client);
    }
    return NULL;
}

bool answers_begin(int port)
{
    int yes = 1, listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    pthread_t thread;
    bool bound = listener >= 0 && !setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
                 !bind(listener, (struct sockaddr *)&six, sizeof six);
    if (!bound) { /* this machine has no IPv6 */
        if (listener >= 0) close(listener);
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bound = listener >= 0 && !setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
                !bind(listener, (struct sockaddr *)&four, sizeof four);
    }
    return bound && !listen(listener, 16) && !pthread_create(&thread, NULL, run, (void *)(intptr_t)listener);
}
