/* The workload's options: from the command line, else from the environment, else a default. */
#ifndef WORKLOAD_OPTIONS_H
#define WORKLOAD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
    bool train;         /* else serve */
    double rate;        /* requests per second */
    bool fixed;         /* arrivals at equal intervals; else a Poisson process */
    uint64_t kernels;   /* in each request or step */
    uint64_t kernel_us; /* duration of each kernel */
    int sms;            /* that a kernel fills; 0: all */
    size_t memory;      /* bytes that are allocated and never used */
    int device;
    double seconds;        /* until the program ends; 0: never */
    double report_seconds; /* between two reports */
    uint64_t seed;         /* of the arrivals */
    int port;              /* of the HTTP server; 0: none */
};

/* Ends the program with status 0 for --help, and with status 2 and a sentence on standard error for invalid options. */
struct options options_read(int count, char **arguments);

#endif
