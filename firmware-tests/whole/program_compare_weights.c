/* program_compare_weights A B [BASE]: prints the relative L2 distance |A - B| / |A - BASE| of two
 * files of raw fp32 (BASE: zeroes), as gf-train --dump-weights writes them. Fails where they cannot
 * be compared. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct weights {
    float *data;
    long count;
};

static int weights_read(const char *path, struct weights *weights_out)
{
    FILE *file = fopen(path, "rb");
    long bytes = -1;
    if ((file != NULL) && (fseek(file, 0, SEEK_END) == 0)) bytes = ftell(file);
    if ((bytes <= 0) || (bytes % (long)sizeof(float) != 0)) {
        fprintf(stderr, "%s: not a file of fp32 numbers\n", path);
        return -1;
    }
    rewind(file);
    weights_out->count = bytes / (long)sizeof(float);
    weights_out->data = malloc((size_t)bytes);
    if ((weights_out->data == NULL) ||
        (fread(weights_out->data, sizeof(float), (size_t)weights_out->count, file) !=
         (size_t)weights_out->count)) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return -1;
    }
    return fclose(file);
}

int main(int argc, char **argv)
{
    struct weights files[3] = {0};
    double apart = 0.0;
    double size = 0.0;
    if ((argc != 3) && (argc != 4)) return 2;
    for (int i = 1; i < argc; i++)
        if (weights_read(argv[i], &files[i - 1]) != 0) return EXIT_FAILURE;
    for (int i = 1; i < argc - 1; i++)
        if (files[i].count != files[0].count) {
            fprintf(stderr, "%s: another number of weights than %s\n", argv[i + 1], argv[1]);
            return EXIT_FAILURE;
        }
    for (long i = 0; i < files[0].count; i++) {
        double a = (double)files[0].data[i];
        double b = (double)files[1].data[i];
        double base = (argc == 4) ? (double)files[2].data[i] : 0.0;
        apart += (a - b) * (a - b);
        size += (a - base) * (a - base);
    }
    for (int i = 0; i < 3; i++) free(files[i].data);
    if (!isfinite(apart) || !isfinite(size) || (size == 0.0)) {
        fprintf(stderr, "the weights of %s are not finite, or all as at first\n", argv[1]);
        return EXIT_FAILURE;
    }
    printf("%.3e\n", sqrt(apart / size));
    return EXIT_SUCCESS;
}
