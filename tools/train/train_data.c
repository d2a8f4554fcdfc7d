/* idx files and the order in which they are read. */
#include "tools/train/train_data.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "tools/common/tool_file.h"

#define IDX_IMAGES 0x00000803u /* unsigned bytes in three dimensions */
#define IDX_LABELS 0x00000801u
#define PATH_BYTES 1024

struct idx_file {
    gzFile stream;
    uint64_t offset; /* in the unpacked data */
    char path[PATH_BYTES];
    char *error_out;
};

__attribute__((format(printf, 2, 3))) static int idx_error(struct idx_file *file,
                                                           const char *format, ...)
{
    va_list args;
    int used = snprintf(file->error_out, DATA_ERROR_BYTES, "%s: ", file->path);
    if ((used < 0) || (used >= DATA_ERROR_BYTES)) return -1;
    va_start(args, format);
    vsnprintf(file->error_out + used, (size_t)(DATA_ERROR_BYTES - used), format, args);
    va_end(args);
    return -1;
}

static int idx_open(struct idx_file *file, const char *folder, const char *prefix, const char *kind,
                    char *error_out)
{
    char why[TOOL_FILE_WHY_BYTES];
    file->error_out = error_out;
    file->offset = 0;
    file->stream = NULL;
    int used = snprintf(file->path, sizeof file->path, "%s/%s-%s-ubyte.gz", folder, prefix, kind);
    if ((used < 0) || ((size_t)used >= sizeof file->path))
        return idx_error(file, "the path is too long");
    int number = tool_file_open(file->path, O_RDONLY, why);
    if ((number < 0) && (errno == ENOENT))
        return idx_error(file,
                         "%s (Debian's package dataset-fashion-mnist brings it; --data DIR names "
                         "another folder)",
                         why);
    if (number < 0) return idx_error(file, "%s", why);
    errno = 0;
    file->stream = gzdopen(number, "rb");
    if (file->stream == NULL) {
        (void)close(number);
        return idx_error(file, "%s", (errno != 0) ? strerror(errno) : "out of memory");
    }
    gzbuffer(file->stream, 1u << 17);
    return 0;
}

static void idx_close(struct idx_file *file)
{
    if (file->stream != NULL) gzclose(file->stream);
    file->stream = NULL;
}

/* Exactly size_bytes, or an error that says how far it came. */
static int idx_read(struct idx_file *file, void *data, size_t size_bytes, const char *what)
{
    char *to = data;
    size_t have = 0;
    while (have < size_bytes) {
        size_t want = size_bytes - have;
        int got =
            gzread(file->stream, to + have, (unsigned)((want > (1u << 24)) ? (1u << 24) : want));
        if (got <= 0) {
            int code = Z_OK;
            const char *text = gzerror(file->stream, &code);
            uint64_t at = file->offset + have;
            if ((code != Z_OK) && (code != Z_BUF_ERROR)) {
                return idx_error(file, "offset %llu (unpacked), in the %s: %s",
                                 (unsigned long long)at, what,
                                 (code == Z_ERRNO) ? strerror(errno) : text);
            }
            return idx_error(
                file, "cut short at offset %llu (unpacked): expected %zu bytes of %s, found %zu",
                (unsigned long long)at, size_bytes, what, have);
        }
        have += (size_t)got;
    }
    file->offset += size_bytes;
    return 0;
}

static int idx_read_u32(struct idx_file *file, const char *what, uint32_t *value_out)
{
    uint8_t byte[4];
    if (idx_read(file, byte, sizeof byte, what) != 0) return -1;
    *value_out =
        ((uint32_t)byte[0] << 24) | ((uint32_t)byte[1] << 16) | ((uint32_t)byte[2] << 8) | byte[3];
    return 0;
}

static int idx_expect_u32(struct idx_file *file, const char *what, uint32_t expected)
{
    uint32_t found = 0;
    if (idx_read_u32(file, what, &found) != 0) return -1;
    if (found == expected) return 0;
    return idx_error(file, "offset %llu (unpacked): expected %s 0x%08x, found 0x%08x",
                     (unsigned long long)(file->offset - 4u), what, expected, found);
}

static int idx_read_count(struct idx_file *file, uint32_t *count_out)
{
    uint32_t count = 0;
    if (idx_read_u32(file, "count", &count) != 0) return -1;
    if ((count == 0) || (count > DATA_IMAGES_MAX)) {
        return idx_error(file, "offset %llu (unpacked): expected a count of 1 to %u, found %u",
                         (unsigned long long)(file->offset - 4u), DATA_IMAGES_MAX, count);
    }
    *count_out = count;
    return 0;
}

/* The end, and with it gzip's checksum of everything before. */
static int idx_end(struct idx_file *file)
{
    char byte;
    int got = gzread(file->stream, &byte, 1);
    if (got > 0) {
        return idx_error(file, "offset %llu (unpacked): expected the end of the file, found more",
                         (unsigned long long)file->offset);
    }
    int code = Z_OK;
    const char *text = gzerror(file->stream, &code);
    if (code == Z_OK) return 0;
    return idx_error(file, "offset %llu (unpacked), at the end of the file: %s",
                     (unsigned long long)file->offset, (code == Z_ERRNO) ? strerror(errno) : text);
}

static int images_read(struct idx_file *file, struct data_set *set)
{
    if (idx_expect_u32(file, "magic", IDX_IMAGES) != 0) return -1;
    if (idx_read_count(file, &set->image_count) != 0) return -1;
    if (idx_expect_u32(file, "image height", DATA_SIDE) != 0) return -1;
    if (idx_expect_u32(file, "image width", DATA_SIDE) != 0) return -1;
    size_t size_bytes = (size_t)set->image_count * DATA_PIXELS;
    set->pixels = malloc(size_bytes);
    if (set->pixels == NULL) return idx_error(file, "no memory for %zu bytes", size_bytes);
    if (idx_read(file, set->pixels, size_bytes, "pixels") != 0) return -1;
    return idx_end(file);
}

static int labels_read(struct idx_file *file, struct data_set *set)
{
    uint32_t count = 0;
    if (idx_expect_u32(file, "magic", IDX_LABELS) != 0) return -1;
    if (idx_read_count(file, &count) != 0) return -1;
    if (count != set->image_count) {
        return idx_error(
            file, "offset 4 (unpacked): expected a count of %u, as there are images, found %u",
            set->image_count, count);
    }
    set->labels = malloc(count);
    if (set->labels == NULL) return idx_error(file, "no memory for %u bytes", count);
    if (idx_read(file, set->labels, count, "labels") != 0) return -1;
    for (uint32_t i = 0; i < count; i++) {
        if (set->labels[i] < DATA_CLASSES) continue;
        return idx_error(file, "offset %u (unpacked): expected a label of 0 to %u, found %u",
                         8u + i, DATA_CLASSES - 1u, set->labels[i]);
    }
    return idx_end(file);
}

int data_open(const char *folder, const char *prefix, struct data_set *set_out, char *error_out)
{
    struct data_set set = {0};
    struct idx_file file;
    int result = idx_open(&file, folder, prefix, "images-idx3", error_out);
    if (result == 0) result = images_read(&file, &set);
    idx_close(&file);
    if (result == 0) result = idx_open(&file, folder, prefix, "labels-idx1", error_out);
    if (result == 0) result = labels_read(&file, &set);
    idx_close(&file);
    if (result != 0) {
        data_close(&set);
        return -1;
    }
    *set_out = set;
    return 0;
}

void data_close(struct data_set *set)
{
    free(set->pixels);
    free(set->labels);
    *set = (struct data_set){0};
}

void data_shuffle(uint64_t seed, uint64_t epoch, uint32_t *order, uint32_t count)
{
    struct data_random random;
    data_random_seed(&random, seed, epoch + 1u); /* stream 0 draws the weights */
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = data_random_below(&random, i);
        uint32_t kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}

static uint64_t splitmix64(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

void data_random_seed(struct data_random *random, uint64_t seed, uint64_t stream)
{
    random->state = splitmix64(splitmix64(seed) ^ splitmix64(~stream));
    if (random->state == 0) random->state = 1; /* the one state that xorshift never leaves */
}

static uint64_t random_next(struct data_random *random)
{
    uint64_t state = random->state;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    random->state = state;
    return state * 0x2545f4914f6cdd1du;
}

uint32_t data_random_below(struct data_random *random, uint32_t bound)
{
    /* 2^32 mod bound: values below it would come once too often */
    uint32_t odd_ones = (uint32_t)(-bound) % bound;
    for (;;) {
        uint64_t wide = (random_next(random) >> 32) * bound;
        if ((uint32_t)wide >= odd_ones) return (uint32_t)(wide >> 32);
    }
}

float data_random_normal(struct data_random *random)
{
    double radius = ((double)(random_next(random) >> 11) + 1.0) * 0x1p-53; /* (0, 1] */
    double turn = (double)(random_next(random) >> 11) * 0x1p-53;
    return (float)(sqrt(-2.0 * log(radius)) * cos(6.283185307179586 * turn));
}
