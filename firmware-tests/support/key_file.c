#include "firmware-tests/support/key_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char key_path[64];

int key_file_make(void **state)
{
    int fd;
    (void)snprintf(key_path, sizeof key_path, "/tmp/gf_key_XXXXXX");
    fd = mkstemp(key_path);
    return ((fd < 0) || (write(fd, "0123456789abcdef0123456789abcdef", 32) != 32) ||
            (close(fd) != 0))
               ? -1
               : 0;
}

int key_file_remove(void **state)
{
    return unlink(key_path);
}
