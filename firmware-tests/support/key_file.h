/* One key of 32 bytes on disk for a whole group of tests: TEST_AROUND(key_file_make,
 * key_file_remove). */
#ifndef KEY_FILE_H
#define KEY_FILE_H

extern char key_path[64];

int key_file_make(void **state);
int key_file_remove(void **state);

#endif
