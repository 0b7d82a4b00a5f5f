/* What the workload is told: on its command line, else in its environment, else a default. */
#ifndef WORKLOAD_OPTIONS_H
#define WORKLOAD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
    bool train;         /* else serve */
    double rate;        /* requests a second */
    bool fixed;         /* arrivals at equal distances; else a Poisson process */
    uint64_t kernels;   /* of a request or step */
    uint64_t kernel_us; /* of each */
    int sms;            /* that a kernel fills; 0: all */
    size_t memory;      /* bytes that are taken and never used */
    int device;
    double seconds;        /* until it ends by itself; 0: never */
    double report_seconds; /* between two reports */
    uint64_t seed;         /* of the arrivals */
    int port;              /* where HTTP requests are answered; 0: nowhere */
};

/* Ends the program: with status 0 for --help, with 2 and one sentence on standard error for what cannot be. */
struct options options_read(int count, char **arguments);

#endif
