/* UNTIL(condition): waits for it; the test fails if it does not come true within the deadline. */
#ifndef ORION_TEST_UNTIL_H
#define ORION_TEST_UNTIL_H

#include "check.h"

#include "system/system.h"

#define DEADLINE_NS (20 * ORION_SECOND)

#define UNTIL(condition) \
    do { \
        uint64_t until_ = orion_now() + DEADLINE_NS; \
        while (!(condition)) { \
            CHECK(orion_now() < until_); \
            orion_sleep_precisely(ORION_MILLISECOND); \
        } \
    } while (0)

#endif
