#include "interposition/unknown_names.h"

#include <stddef.h>

/* The functions that the hook leaves alone, in the order of strcmp. */
static const char *const passed[] = {
#include "generated/passed.inc"
};

/* Not functions of the C library: see order_of in lookup.c. */
static int order_of(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

static bool has(const char *name, const char *word)
{
    for (; *name != '\0'; name++) {
        size_t same = 0;
        while (word[same] != '\0' && name[same] == word[same]) same++;
        if (word[same] == '\0') return true;
    }
    return false;
}

static bool is_passed(const char *name)
{
    size_t low = 0, high = sizeof passed / sizeof *passed;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = order_of(name, passed[middle]);
        if (order == 0) return true;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return false;
}

/* Only the driver's names go on with a capital letter behind `cu`. cuGraphics* are functions of OpenGL and its kind,
 * which other headers declare. */
bool orion_is_unknown_name(const char *name)
{
    static const char *const words[] = {"Launch", "Mem", "Cpy", "Copy", "Prefetch", "Batch", "Graph"};
    if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z') return false;
    if (has(name, "Get") || has(name, "Query") || has(name, "Graphics")) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (has(name, words[i])) return !is_passed(name);
    return false;
}
