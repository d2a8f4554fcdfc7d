/* Fashion-MNIST (or MNIST) as Debian ships it: idx files under gzip. Checked strictly: a data set
 * cut short or mixed up is an error that names the file, the offset and what was expected, never a
 * network that learns noise. */
#ifndef GF_TRAIN_DATA_H
#define GF_TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

#define DATA_SIDE 28u
#define DATA_PIXELS (DATA_SIDE * DATA_SIDE)
#define DATA_CLASSES 10u
#define DATA_FOLDER "/usr/share/datasets/fashion-mnist"
#define DATA_ERROR_BYTES 512
#define DATA_IMAGES_MAX (1u << 24)

struct data_set {
    uint32_t image_count;
    uint8_t *pixels; /* [image_count][DATA_PIXELS], row by row */
    uint8_t *labels; /* [image_count], below DATA_CLASSES */
};

/* Reads folder/PREFIX-images-idx3-ubyte.gz and folder/PREFIX-labels-idx1-ubyte.gz ("train",
 * "t10k"). 0, or -1 with one line in error_out[DATA_ERROR_BYTES] and *set_out untouched.
 * data_close() frees; a zeroed set is valid. */
int data_open(const char *folder, const char *prefix, struct data_set *set_out, char *error_out);
void data_close(struct data_set *set);

/* order[count] = the images of an epoch, a permutation that depends on seed and epoch alone. */
void data_shuffle(uint64_t seed, uint64_t epoch, uint32_t *order, uint32_t count);

/* xorshift64*, seeded through splitmix64: the same numbers on every machine. */
struct data_random {
    uint64_t state;
};
void data_random_seed(struct data_random *random, uint64_t seed, uint64_t stream);
uint32_t data_random_below(struct data_random *random, uint32_t bound); /* even, no modulo bias */
float data_random_normal(struct data_random *random);                   /* mean 0, deviation 1 */

#endif
