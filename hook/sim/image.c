/* Text images: a first line `orion-sim 1`, then one `kernel` line for each kernel. `#` starts a comment that ends with
 * the line. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "trace.h"

#define LINE 1024
#define KERNELS 65536

/* Parses an amount. "1.8" sets `*value` to 1.8 times `scale`, rounded. "@2" sets `*parameter` to 2: the launch takes
 * the amount from that parameter. */
static bool parse_amount(const char *text, double scale, uint64_t *value, int *parameter)
{
    char *end;
    if (*text == '@') {
        *parameter = (int)strtol(text + 1, &end, 10);
        return end != text + 1 && *end == 0 && *parameter >= 0;
    }
    double amount = strtod(text, &end);
    if (end == text || *end || !(amount >= 0) || amount > 1e12) return false;
    *value = (uint64_t)(amount * scale + 0.5);
    return true;
}

/* "8,8,4": sizes in bytes; each parameter is aligned to its size, as C lays out a struct. */
static bool parse_parameters(const char *text, struct sim_kernel *kernel)
{
    unsigned offset = 0;
    while (*text) {
        char *end;
        unsigned long size = strtoul(text, &end, 10);
        if (end == text || !size || size > 4096 || kernel->parameter_count == SIM_PARAMETERS) return false;
        unsigned alignment = size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : size % 2 == 0 ? 2 : 1;
        offset = (offset + alignment - 1) / alignment * alignment;
        kernel->parameter_size[kernel->parameter_count] = (uint16_t)size;
        kernel->parameter_offset[kernel->parameter_count++] = (uint16_t)offset;
        offset += (unsigned)size;
        text = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') return false;
    }
    return true;
}

/* "@2": the index of a parameter. */
static bool parse_index(const char *text, int *parameter)
{
    uint64_t none = 0;
    return parse_amount(text, 1, &none, parameter) && *parameter >= 0;
}

static bool parse_field(char *field, struct sim_kernel *kernel)
{
    char *value = strchr(field, '=');
    if (!value) return false;
    *value++ = 0;
    if (!strcmp(field, "duration_us")) return parse_amount(value, 1000, &kernel->duration_ns, &kernel->duration_parameter);
    if (!strcmp(field, "sms") && !strcmp(value, "grid")) return kernel->sms_of_grid = true;
    if (!strcmp(field, "barrier")) return kernel->barrier = !strcmp(value, "grid");
    if (!strcmp(field, "sms")) return parse_amount(value, 1, &kernel->sms, &kernel->sms_parameter);
    if (!strcmp(field, "log")) return parse_index(value, &kernel->log_parameter);
    if (!strcmp(field, "meets")) return parse_index(value, &kernel->meets_parameter);
    if (!strcmp(field, "error")) {
        uint64_t error = 0;
        int none = -1;
        bool good = parse_amount(value, 1, &error, &none) && none < 0;
        kernel->error = (CUresult)error;
        return good;
    }
    return !strcmp(field, "params") && parse_parameters(value, kernel);
}

/* Parameter `index` is an address, and a number follows it; -1: the kernel has neither. */
static bool has_pair(const struct sim_kernel *kernel, int index)
{
    return index < 0 || (index + 1 < kernel->parameter_count && kernel->parameter_size[index] == 8);
}

static bool check(const struct sim_kernel *kernel)
{
    return kernel->duration_parameter < kernel->parameter_count && kernel->sms_parameter < kernel->parameter_count &&
           has_pair(kernel, kernel->log_parameter) && has_pair(kernel, kernel->meets_parameter);
}

/* Parses one line `kernel NAME field=value ...`. */
static bool parse_kernel(char *line, struct sim_image *image)
{
    char *rest = NULL, *name = strtok_r(line, " \t", &rest);
    if (!name || strlen(name) >= sizeof image->kernels[0]->name || sim_image_find(image, name)) return false;
    struct sim_kernel *kernel = sim_handle_new(SIM_FUNCTION, sizeof *kernel);
    if (!kernel) return false;
    strcpy(kernel->name, name);
    kernel->image = image;
    kernel->sms = 1;
    kernel->duration_parameter = kernel->sms_parameter = kernel->log_parameter = kernel->meets_parameter =
        kernel->preferred_carveout = -1;
    kernel->label = sim_trace_label("kernel", name);
    image->kernels[image->count++] = kernel;
    for (char *field; (field = strtok_r(NULL, " \t", &rest));)
        if (!parse_field(field, kernel)) return false;
    return check(kernel);
}

static bool parse_line(const char *text, size_t length, struct sim_image *image)
{
    char line[LINE];
    if (length >= sizeof line) return false;
    memcpy(line, text, length);
    line[length] = 0;
    line[strcspn(line, "#\r")] = 0;
    char *start = line;
    while (isspace((unsigned char)*start)) start++;
    if (!*start) return true;
    if (strncmp(start, "kernel", 6) || !isspace((unsigned char)start[6]) || image->count == KERNELS) return false;
    if (image->count % 64 == 0) {
        void *grown = realloc(image->kernels, (image->count + 64) * sizeof *image->kernels);
        if (!grown) return false;
        image->kernels = grown;
    }
    return parse_kernel(start + 7, image);
}

CUresult sim_image_parse(const char *text, struct sim_image **parsed)
{
    static const char magic[] = "orion-sim 1";
    if (strncmp(text, magic, sizeof magic - 1) || !strchr("\r\n", text[sizeof magic - 1])) return CUDA_ERROR_INVALID_IMAGE;
    struct sim_image *image = calloc(1, sizeof *image);
    SIM_REFUSE(!image, CUDA_ERROR_OUT_OF_MEMORY);
    bool good = true;
    for (const char *line = text + sizeof magic - 1; good && *line;) {
        size_t length = strcspn(line, "\n");
        good = parse_line(line, length, image);
        line += length + (line[length] == '\n');
    }
    if (!good) {
        sim_image_free(image);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *parsed = image;
    return CUDA_SUCCESS;
}

void sim_image_free(struct sim_image *image)
{
    for (unsigned i = 0; i < image->count; i++) sim_handle_free(image->kernels[i]);
    free(image->kernels);
    free(image);
}

struct sim_kernel *sim_image_find(const struct sim_image *image, const char *name)
{
    for (unsigned i = 0; i < image->count; i++)
        if (!strcmp(image->kernels[i]->name, name)) return image->kernels[i];
    return NULL;
}
