/* Decides which GPUs of the machine this process sees as its devices 0, 1, ...
 *
 * There are two lists, as with NVIDIA's container toolkit and CUDA. ORION_SIM_VISIBLE_GPUS names the GPUs that a
 * container was given, as UUIDs in any order. CUDA_VISIBLE_DEVICES selects from these the GPUs that the program wants,
 * as numbers or UUIDs (or prefixes of UUIDs), in the program's order. An invalid entry ends this list. A list that is
 * not set selects all GPUs. The driver reads both lists once, when it is initialised. */
#include <stdlib.h>
#include <string.h>

#include "device_identity.h"
#include "sim.h"

#define LONGEST 64

static int gpus[SIM_GPUS], count;

int sim_device_count(void) { return count; }

bool sim_device_valid(CUdevice device) { return device >= 0 && device < count; }

int sim_device_gpu(CUdevice device) { return gpus[device]; }

/* The next word of a list; "" for a word that is empty or too long; NULL at the end. */
static const char *next_word(const char **list, char word[LONGEST])
{
    if (!*list) return NULL;
    size_t length = strcspn(*list, ",");
    *word = 0;
    if (length < LONGEST) {
        memcpy(word, *list, length);
        word[length] = 0;
    }
    *list = (*list)[length] ? *list + length + 1 : NULL;
    return word;
}

/* The index in `among` of the GPU that the word names; -1: none or several match. */
static int index_of(const char *word, const int *among, int many)
{
    char uuid[SIM_UUID_TEXT], *end;
    int found = -1;
    if (strncmp(word, "GPU-", 4)) {
        long number = strtol(word, &end, 10);
        return end != word && !*end && number >= 0 && number < many ? (int)number : -1;
    }
    for (int at = 0; at < many; at++) {
        sim_gpu_uuid_text(among[at], uuid);
        if (!strncmp(word, uuid, strlen(word))) {
            if (found >= 0) return -1;
            found = at;
        }
    }
    return found;
}

static bool contains(const int *list, int many, int gpu)
{
    for (int at = 0; at < many; at++)
        if (list[at] == gpu) return true;
    return false;
}

int sim_given_gpus(int into[SIM_GPUS])
{
    const char *list = getenv("ORION_SIM_VISIBLE_GPUS"), *text;
    char word[LONGEST];
    int all[SIM_GPUS], many = (int)sim_machine->parameters.gpus, taken = 0;
    uint64_t named = list ? 0 : UINT64_MAX;
    for (int gpu = 0; gpu < many; gpu++) all[gpu] = gpu;
    while ((text = next_word(&list, word))) {
        int gpu = index_of(text, all, many);
        if (gpu >= 0) named |= UINT64_C(1) << gpu;
    }
    for (int gpu = 0; gpu < many; gpu++)
        if (named >> gpu & 1) into[taken++] = gpu;
    return taken;
}

void sim_choose_devices(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *text;
    char word[LONGEST];
    int had[SIM_GPUS], many = sim_given_gpus(had);
    bool chosen = list != NULL;
    count = 0;
    for (int at = 0; !chosen && at < many; at++) gpus[count++] = had[at];
    while ((text = next_word(&list, word))) {
        int at = index_of(text, had, many);
        if (at < 0) return;
        if (contains(gpus, count, had[at])) { /* a GPU named twice: no GPU at all, as in CUDA */
            count = 0;
            return;
        }
        gpus[count++] = had[at];
    }
}
