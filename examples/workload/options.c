/* Implements options.h: one table of flags, variables, defaults and help texts. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RATE, FIXED, KERNELS, KERNEL_US, SMS, MEMORY, DEVICE, SECONDS, REPORT, SEED, PORT, OPTIONS };

static const struct {
    const char *name, *variable, *serve, *train; /* the defaults in both modes */
    const char *help;
} table[OPTIONS] = {
    [RATE] = {"rate", "WORKLOAD_RATE", "50", "0", "serve: requests per second; 0: each HTTP request is one"},
    [FIXED] = {"fixed", "WORKLOAD_FIXED", "0", "0", "serve: 1: requests arrive at equal intervals; 0: at random (Poisson)"},
    [KERNELS] = {"kernels", "WORKLOAD_KERNELS", "4", "10", "kernels in each request or step"},
    [KERNEL_US] = {"kernel-us", "WORKLOAD_KERNEL_US", "1000", "1000", "duration of each kernel in microseconds"},
    [SMS] = {"sms", "WORKLOAD_SMS", "0", "0", "SMs that each kernel fills; 0: all"},
    [MEMORY] = {"memory", "WORKLOAD_MEMORY", "0", "0", "GPU memory to allocate: bytes, or 512MiB, 4GiB"},
    [DEVICE] = {"device", "WORKLOAD_DEVICE", "0", "0", "index of the GPU among those of the container"},
    [SECONDS] = {"seconds", "WORKLOAD_SECONDS", "0", "0", "end after this time; 0: run until SIGTERM"},
    [REPORT] = {"report", "WORKLOAD_REPORT", "5", "5", "seconds between two reports"},
    [SEED] = {"seed", "WORKLOAD_SEED", "1", "1", "serve: seed of the random arrivals"},
    [PORT] = {"port", "WORKLOAD_PORT", "0", "0", "serve: port of an HTTP server with the latest report; 0: none"},
};

static const char introduction[] =
    "usage: workload serve|train [--OPTION VALUE]...\n\n"
    "A GPU program for trying a shared GPU. It computes nothing: its kernels take a configured time.\n\n"
    "  serve   answers requests in open loop, one at a time, and reports latency: from a request's arrival to its end.\n"
    "          Run it as hp (high priority).\n"
    "  train   runs steps back to back, and reports steps per second. Run it as be (best effort).\n\n"
    "It writes lines of JSON: first {\"event\":\"ready\",...}, then {\"event\":\"report\",...} for the time since the last\n"
    "line, and at the end {\"event\":\"summary\",...} for the whole run. SIGTERM and Ctrl-C end it with status 0.\n\n";

static void print_help(void)
{
    fputs(introduction, stdout);
    printf("  %-12s %-20s %-14s %s\n", "option", "or variable", "default", "");
    for (int i = 0; i < OPTIONS; i++) {
        bool same = !strcmp(table[i].serve, table[i].train) || !strncmp(table[i].help, "serve:", 6);
        char otherwise[32];
        snprintf(otherwise, sizeof otherwise, same ? "%s" : "%s (train %s)", table[i].serve, table[i].train);
        printf("  --%-10s %-20s %-14s %s\n", table[i].name, table[i].variable, otherwise, table[i].help);
    }
    fputs("\n  workload serve --rate 85 --kernels 4 --kernel-us 1000\n"
          "  workload train --kernels 10 --kernel-us 1800 --memory 4GiB\n",
          stdout);
    exit(0);
}

static void refuse(const char *what, const char *value)
{
    fprintf(stderr, "workload: %s%s%s; see --help\n", what, *value ? ": " : "", value);
    exit(2);
}

static double number(const char *option, const char *text)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (end != text && !strcmp(end, units[i].unit) && value >= 0 && value * units[i].factor < 1e15)
            return value * units[i].factor;
    refuse(option, text);
    return 0;
}

static int find(const char *name)
{
    for (int i = 0; i < OPTIONS; i++)
        if (!strncmp(name, "--", 2) && !strcmp(name + 2, table[i].name)) return i;
    refuse("there is no option", name);
    return 0;
}

struct options options_read(int count, char **arguments)
{
    double values[OPTIONS];
    for (int i = 1; i < count; i++)
        if (!strcmp(arguments[i], "--help") || !strcmp(arguments[i], "-h")) print_help();
    const char *mode = count > 1 ? arguments[1] : "";
    bool train = !strcmp(mode, "train");
    if (!train && strcmp(mode, "serve")) refuse("the first word must be serve or train", mode);
    for (int i = 0; i < OPTIONS; i++) {
        const char *set = getenv(table[i].variable);
        values[i] = number(table[i].variable, set && *set ? set : train ? table[i].train : table[i].serve);
    }
    for (int i = 2; i < count; i += 2) {
        int option = find(arguments[i]);
        if (i + 1 == count) refuse("this option needs a value", arguments[i]);
        values[option] = number(arguments[i], arguments[i + 1]);
    }
    if (values[KERNELS] < 1 || values[REPORT] <= 0) refuse("--kernels and --report must be positive", "");
    if (!train && values[RATE] <= 0 && values[PORT] <= 0) refuse("--rate must be positive, or 0 with a --port", "");
    if (values[PORT] > 65535) refuse("--port must be at most 65535", "");
    return (struct options){train,
                            values[RATE],
                            values[FIXED] != 0,
                            (uint64_t)values[KERNELS],
                            (uint64_t)values[KERNEL_US],
                            (int)values[SMS],
                            (size_t)values[MEMORY],
                            (int)values[DEVICE],
                            values[SECONDS],
                            values[REPORT],
                            (uint64_t)values[SEED],
                            train ? 0 : (int)values[PORT]};
}
