/* The workload's options: from the command line, else from the environment, else a default. */
#ifndef WORKLOAD_OPTIONS_H
#define WORKLOAD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
    bool train;         /* true: train; false: serve */
    double rate;        /* requests per second; 0: each HTTP request is one */
    bool fixed;         /* arrivals at equal intervals; else a Poisson process */
    uint64_t kernels;   /* number of kernels in each request or step */
    uint64_t kernel_us; /* duration of each kernel */
    int sms;            /* number of SMs that a kernel fills; 0: all */
    size_t memory;      /* bytes that are allocated and never used */
    int device;
    double seconds;        /* the program ends after this time; 0: never */
    double report_seconds; /* time between two reports */
    uint64_t seed;         /* seed of the random arrivals */
    int port;              /* port of the HTTP server; 0: no server */
};

/* Ends the program with status 0 for --help, and with status 2 and a sentence on standard error for invalid options. */
struct options options_read(int count, char **arguments);

#endif
