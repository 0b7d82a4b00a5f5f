/* A GPU program for trying a shared GPU: it serves requests or trains without end, and reports its performance.
 *
 * `--help` describes its use; README.md shows it in pods. It contains no code for Orion. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "answers.h"
#include "gpu.h"
#include "latencies.h"
#include "options.h"

#define SECOND_NS 1e9
#define LOOK_NS 100000000u /* the longest sleep; afterwards the program looks for signals and due reports */

static volatile sig_atomic_t terminated;

static void end(int number)
{
    (void)number;
    terminated = 1;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sleeps until this time, or until a signal arrives. */
static void sleep_until(uint64_t ns)
{
    struct timespec until = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Times of the next events, in CLOCK_MONOTONIC nanoseconds. */
struct timetable { uint64_t begin, end, reported, report; };

static struct timetable begin_now(const struct options *options)
{
    uint64_t now = now_ns();
    uint64_t end = options->seconds > 0 ? now + (uint64_t)(options->seconds * SECOND_NS) : UINT64_MAX;
    return (struct timetable){now, end, now, now + (uint64_t)(options->report_seconds * SECOND_NS)};
}

static bool over(const struct timetable *times) { return terminated || now_ns() >= times->end; }

/* Returns the seconds since the last report if a report is due; else 0. */
static double report_due(struct timetable *times, const struct options *options)
{
    uint64_t now = now_ns(), before = times->reported;
    if (now < times->report) return 0;
    times->reported = now;
    times->report = now + (uint64_t)(options->report_seconds * SECOND_NS);
    return (double)(now - before) / SECOND_NS;
}

static void print_served(const char *event, double seconds, const struct latencies *latencies)
{
    char counted[256], line[384];
    latencies_write(latencies, counted, sizeof counted);
    snprintf(line, sizeof line, "{\"event\":\"%s\",\"seconds\":%.3f,%s}\n", event, seconds, counted);
    fputs(line, stdout);
    answers_say(line);
}

static void report_served(struct timetable *times, const struct options *options, struct latencies *recent)
{
    double seconds = report_due(times, options);
    if (seconds > 0) {
        print_served("report", seconds, recent);
        memset(recent, 0, sizeof *recent);
    }
}

/* Returns the seconds until the next request. xorshift64* gives the same arrivals for a seed with every C library. */
static double next_gap(const struct options *options, uint64_t *random)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    double uniform = ((double)((*random * UINT64_C(2685821657736338717)) >> 11) + 1) / 9007199254740993.0;
    return options->fixed ? 1 / options->rate : -log(uniform) / options->rate;
}

/* Open loop: a request that arrives while another is served waits, and the wait counts as latency. */
static void serve(const struct options *options)
{
    static struct latencies recent, all;
    uint64_t random = options->seed * 2 + 1;
    struct timetable times = begin_now(options);
    double arrival = (double)times.begin;
    for (;;) {
        arrival += next_gap(options, &random) * SECOND_NS;
        while (!over(&times) && now_ns() < (uint64_t)arrival) {
            uint64_t look = now_ns() + LOOK_NS;
            sleep_until((uint64_t)arrival < look ? (uint64_t)arrival : look);
            report_served(&times, options, &recent);
        }
        if (over(&times)) break;
        gpu_launch(options->kernels, options->kernel_us);
        gpu_wait();
        uint64_t latency = now_ns() - (uint64_t)arrival;
        latencies_add(&recent, latency);
        latencies_add(&all, latency);
        report_served(&times, options, &recent);
    }
    print_served("summary", (double)(now_ns() - times.begin) / SECOND_NS, &all);
}

/* A request arrives when an HTTP client asks, and is answered once it has been computed. */
static void serve_clients(const struct options *options, int listener)
{
    static struct latencies recent, all;
    struct timetable times = begin_now(options);
    while (!over(&times)) {
        int client = answers_accept(listener, LOOK_NS / 1000000);
        if (client >= 0) {
            uint64_t arrival = now_ns();
            gpu_launch(options->kernels, options->kernel_us);
            gpu_wait();
            answers_reply(client);
            uint64_t latency = now_ns() - arrival;
            latencies_add(&recent, latency);
            latencies_add(&all, latency);
        }
        report_served(&times, options, &recent);
    }
    print_served("summary", (double)(now_ns() - times.begin) / SECOND_NS, &all);
}

static void print_trained(const char *event, double seconds, uint64_t steps)
{
    printf("{\"event\":\"%s\",\"seconds\":%.3f,\"steps\":%llu,\"steps_per_s\":%.3f}\n", event, seconds, (unsigned long long)steps,
           (double)steps / seconds);
}

/* One step is queued while another runs, so the GPU never waits for the host; frameworks do the same. */
static void train(const struct options *options)
{
    struct timetable times = begin_now(options);
    uint64_t queued = 0, reported = 0;
    while (!over(&times)) {
        gpu_launch(options->kernels, options->kernel_us);
        gpu_mark((int)(queued % 2));
        if (queued++) gpu_wait_mark((int)(queued % 2)); /* wait for the previous step */
        double seconds = report_due(&times, options);
        if (seconds > 0) {
            print_trained("report", seconds, queued - 1 - reported);
            reported = queued - 1;
        }
    }
    gpu_wait();
    print_trained("summary", (double)(now_ns() - times.begin) / SECOND_NS, queued);
}

int main(int count, char **arguments)
{
    struct options options = options_read(count, arguments);
    struct sigaction ending = {.sa_handler = end};
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigaction(SIGTERM, &ending, NULL);
    sigaction(SIGINT, &ending, NULL);
    struct gpu gpu = gpu_open(options.device, options.memory, options.sms);
    int listener = options.port ? answers_listen(options.port) : -1;
    if (options.port && (listener < 0 || (options.rate > 0 && !answers_begin(listener)))) {
        printf("{\"event\":\"error\",\"call\":\"bind\",\"port\":%d,\"error\":\"%s\"}\n", options.port, strerror(errno));
        return 1;
    }
    printf("{\"event\":\"ready\",\"mode\":\"%s\",\"driver\":\"%s\",\"gpu\":\"%s\",\"name\":\"%s\",\"sms\":%d,"
           "\"kernels\":%llu,\"kernel_us\":%llu}\n",
           options.train ? "train" : "serve", gpu.simulated ? "simulated" : "nvidia", gpu.uuid, gpu.name, gpu.sms,
           (unsigned long long)options.kernels, (unsigned long long)options.kernel_us);
    if (options.train) train(&options);
    else if (options.rate > 0) serve(&options);
    else serve_clients(&options, listener);
    return 0;
}
