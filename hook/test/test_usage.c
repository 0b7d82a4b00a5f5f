/* A client's GPU time is the union of the spans of its work, in whatever order they are reported. */
#include "check.h"

#include "be/usage.h"

#define MS ORION_MILLISECOND
#define US ORION_MICROSECOND
#define BASE (1000 * ORION_SECOND)

static uint64_t add(struct orion_usage *usage, uint64_t begin, uint64_t end)
{
    return orion_usage_add(usage, BASE + begin, BASE + end);
}

static void spans_join(void)
{
    struct orion_usage usage = {0};
    CHECK(add(&usage, 0, MS) == MS);
    CHECK(add(&usage, 0, MS) == 0);                               /* another stream did the same */
    CHECK(add(&usage, MS / 2, 2 * MS) == MS);                     /* overlaps */
    CHECK(add(&usage, 2 * MS, 3 * MS) == MS);                     /* follows */
    CHECK(add(&usage, 3 * MS + 40 * US, 4 * MS) == MS);           /* a short gap counts */
    CHECK(add(&usage, 4 * MS + 60 * US, 5 * MS) == MS - 60 * US); /* a longer one does not */
    CHECK(usage.count == 2);
    CHECK(add(&usage, MS, 5 * MS) == 60 * US); /* a long kernel of another stream, reported at its end */
    CHECK(usage.count == 1);
    CHECK(add(&usage, 6 * MS, 6 * MS) == 0);
    CHECK(add(&usage, 7 * MS, 6 * MS) == 0); /* no span */
}

/* Only the last spans are kept. What is reported later than that counts behind them only. */
static void old_spans_are_forgotten(void)
{
    struct orion_usage usage = {0};
    for (unsigned i = 0; i < 100; i++) CHECK(add(&usage, 2 * i * MS, (2 * i + 1) * MS) == MS);
    CHECK(usage.count == ORION_USAGE_SPANS);
    CHECK(add(&usage, 0, 100 * MS) == 0);
    CHECK(add(&usage, 0, 200 * MS) == 200 * MS - (2 * 91 + 1) * MS - ORION_USAGE_SPANS * MS);
    struct orion_usage other = {0};
    for (unsigned i = 1; i <= ORION_USAGE_SPANS; i++) add(&other, 2 * i * MS, (2 * i + 1) * MS);
    CHECK(add(&other, MS, MS + 100 * US) == 100 * US); /* older than all that are kept */
    CHECK(add(&other, 0, MS + 100 * US) == 0);
}

/* The same spans in any order, compared with a table of microseconds. */
static void any_order_gives_the_union(void)
{
    enum { SPANS = 6, LENGTH = 3000 };
    unsigned seed = 1;
    for (unsigned round = 0; round < 2000; round++) {
        struct orion_usage usage = {0};
        unsigned char used[LENGTH + 1] = {0};
        uint64_t total = 0;
        unsigned expected = 0, gap = LENGTH;
        for (unsigned i = 0; i < SPANS; i++) {
            unsigned begin = (unsigned)rand_r(&seed) % LENGTH, end = begin + (unsigned)rand_r(&seed) % (LENGTH - begin) / 3;
            for (unsigned at = begin; at < end; at++) used[at] = 1;
            total += add(&usage, begin * US, end * US);
        }
        for (unsigned at = 0; at < LENGTH; at++) {
            if (used[at]) expected += 1 + (gap < 50 ? gap : 0), gap = 0;
            else if (gap < LENGTH) gap++;
        }
        CHECK(total == expected * US);
    }
}

int main(void)
{
    spans_join();
    old_spans_are_forgotten();
    any_order_gives_the_union();
    puts("usage: ok");
    return 0;
}
