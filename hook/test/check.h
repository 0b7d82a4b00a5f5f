/* CHECK(condition): a failed check prints its location and its condition, and ends the test with status 1. */
#ifndef ORION_TEST_CHECK_H
#define ORION_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

#endif
