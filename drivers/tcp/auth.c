/* Proofs and MACs of the control channel, all of them keyed BLAKE2b. */
#include "drivers/tcp/auth.h"

#include "drivers/base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each hash begins with a label for its purpose, so that no hash can be taken for another. The hash
 * of the key file has no key yet, and uses its label as the key. All labels have one length. */
#define LABEL_BYTES 24u
static const char label_file[LABEL_BYTES + 1] = "GradientFlow key 1      ";
static const char label_data[LABEL_BYTES + 1] = "GradientFlow data       ";
static const char label_macs[LABEL_BYTES + 1] = "GradientFlow MACs       ";
static const char label_nonce[LABEL_BYTES + 1] = "GradientFlow nonce      ";
static const char label_hello[LABEL_BYTES + 1] = "GradientFlow hello      ";

_Static_assert((GF_AUTH_MAC_BYTES >= crypto_generichash_BYTES_MIN) && (GF_AUTH_PROOF_BYTES == 32),
               "sizes");
_Static_assert((LABEL_BYTES >= crypto_generichash_KEYBYTES_MIN) &&
                   (crypto_generichash_BYTES_MAX >= 64),
               "sizes");

static const char *kind_name(mode_t mode)
{
    if (S_ISREG(mode)) return "a file";
    if (S_ISDIR(mode)) return "a folder";
    return "no regular file";
}

static gf_status file_check(const char *path, const struct stat *file, struct gf_fault *fault_out)
{
    if (!S_ISREG(file->st_mode) || (file->st_uid != geteuid()) || ((file->st_mode & 07177) != 0))
        return gf_fault_set(
            fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
            "rendezvous.key_file %.70s: expected a file "
            "of this user with mode 0600 or 0400, found %s with mode %04o of user %u",
            path, kind_name(file->st_mode), (unsigned)(file->st_mode & 07777),
            (unsigned)file->st_uid);
    if ((file->st_size < GF_AUTH_FILE_BYTES_MIN) || (file->st_size > GF_AUTH_FILE_BYTES_MAX))
        return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                            "rendezvous.key_file %.70s: expected %u to "
                            "%u bytes, found %lld",
                            path, GF_AUTH_FILE_BYTES_MIN, GF_AUTH_FILE_BYTES_MAX,
                            (long long)file->st_size);
    return GF_OK;
}

/* Reads the file in parts, because one of the largest size would not fit the stack. */
static gf_status file_hash(struct gf_auth *auth_out, const char *path, int fd, off_t size,
                           struct gf_fault *fault_out)
{
    crypto_generichash_state hash;
    unsigned char buffer[512];
    off_t have = 0;
    ssize_t got = 0;
    (void)crypto_generichash_init(&hash, (const unsigned char *)label_file, LABEL_BYTES,
                                  sizeof auth_out->key);
    while (have <= size) {
        got = read(fd, buffer, sizeof buffer);
        if ((got < 0) && (errno == EINTR)) continue;
        if (got <= 0) break;
        have += got;
        (void)crypto_generichash_update(&hash, buffer, (unsigned long long)got);
    }
    int error = errno;
    gf_auth_forget(buffer, sizeof buffer);
    if ((got == 0) && (have == size))
        (void)crypto_generichash_final(&hash, auth_out->key, sizeof auth_out->key);
    gf_auth_forget(&hash, sizeof hash);
    if ((got == 0) && (have == size)) return GF_OK;
    return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "read", (got < 0) ? error : 0,
                        "rendezvous.key_file %.70s: %s", path,
                        (got < 0) ? strerror(error) : "its size changed while it was read");
}

gf_status gf_auth_begin(struct gf_fault *fault_out)
{
    if (sodium_init() >= 0) return GF_OK;
    return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "sodium_init", 0,
                        "libsodium could not be set up");
}

gf_status gf_auth_open(struct gf_auth *auth_out, const char *path, struct gf_fault *fault_out)
{
    struct gf_auth auth = {.on = true};
    struct stat file;
    /* What is judged is what was opened; a pipe would be waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if ((fd < 0) || (fstat(fd, &file) != 0)) {
        int error = errno;
        if (fd >= 0) (void)close(fd);
        return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "open", error,
                            "rendezvous.key_file %.70s: %s", path, strerror(error));
    }
    gf_status status = file_check(path, &file, fault_out);
    if (status == GF_OK) status = gf_auth_begin(fault_out);
    if (status == GF_OK) status = file_hash(&auth, path, fd, file.st_size, fault_out);
    (void)close(fd);
    if (status == GF_OK) *auth_out = auth;
    gf_auth_forget(&auth, sizeof auth);
    return status;
}

gf_status gf_auth_open_keyless(struct gf_auth *auth_out, struct gf_fault *fault_out)
{
    *auth_out = (struct gf_auth){.on = true};
    return gf_auth_begin(fault_out);
}

/* BLAKE2b(key; label, said) */
static void hash_labelled(const struct gf_auth *auth, const char *label, const void *transcript,
                          size_t bytes, unsigned char *out, size_t out_bytes)
{
    crypto_generichash_state hash;
    GF_ASSERT(auth->on);
    (void)crypto_generichash_init(&hash, auth->key, sizeof auth->key, out_bytes);
    (void)crypto_generichash_update(&hash, (const unsigned char *)label, LABEL_BYTES);
    (void)crypto_generichash_update(&hash, transcript, bytes);
    (void)crypto_generichash_final(&hash, out, out_bytes);
    gf_auth_forget(&hash, sizeof hash);
}

gf_status gf_auth_source_begin(struct gf_auth_source *source_out, struct gf_fault *fault_out)
{
    ssize_t got;
    *source_out = (struct gf_auth_source){.count = 0};
    do {
        got = getrandom(source_out->seed, sizeof source_out->seed, 0);
    } while ((got < 0) && (errno == EINTR));
    if (got != (ssize_t)sizeof source_out->seed)
        return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "getrandom",
                            (got < 0) ? errno : 0,
                            "keys and nonces cannot be drawn: getrandom() says %s",
                            (got < 0) ? strerror(errno) : "too little");
    return gf_auth_begin(fault_out);
}

void gf_auth_nonce(struct gf_auth_source *source, unsigned char *nonce_out)
{
    struct gf_auth seed = {.on = true};
    const uint64_t number = source->count++;
    memcpy(seed.key, source->seed, sizeof seed.key);
    hash_labelled(&seed, label_nonce, &number, sizeof number, nonce_out, GF_AUTH_NONCE_BYTES);
    gf_auth_forget(&seed, sizeof seed);
}

gf_status gf_auth_derive(const struct gf_auth *job, const unsigned char *secret,
                         struct gf_auth *auth_out, struct gf_fault *fault_out)
{
    struct gf_auth base = *job;
    gf_status status = job->on ? GF_OK : gf_auth_open_keyless(&base, fault_out);
    if (status != GF_OK) return status;
    *auth_out = (struct gf_auth){.on = true};
    hash_labelled(&base, label_data, secret, GF_AUTH_NONCE_BYTES, auth_out->key,
                  sizeof auth_out->key);
    gf_auth_forget(&base, sizeof base);
    return GF_OK;
}

void gf_auth_prove(const struct gf_auth *auth, const void *transcript, size_t bytes,
                   unsigned char *proof_out)
{
    hash_labelled(auth, label_hello, transcript, bytes, proof_out, GF_AUTH_PROOF_BYTES);
}

static bool secret_fits(unsigned char *expected, const unsigned char *found, size_t bytes)
{
    bool fits = (sodium_memcmp(expected, found, bytes) == 0);
    gf_auth_forget(expected, bytes);
    return fits;
}

bool gf_auth_proof_fits(const struct gf_auth *auth, const void *transcript, size_t bytes,
                        const unsigned char *found)
{
    unsigned char expected[GF_AUTH_PROOF_BYTES];
    gf_auth_prove(auth, transcript, bytes, expected);
    return secret_fits(expected, found, sizeof expected);
}

void gf_auth_macs(const struct gf_auth *auth, const void *transcript, size_t bytes,
                  struct gf_auth_mac *to_dialler_out, struct gf_auth_mac *to_acceptor_out)
{
    unsigned char keys[64];
    hash_labelled(auth, label_macs, transcript, bytes, keys, sizeof keys);
    *to_dialler_out = (struct gf_auth_mac){0};
    *to_acceptor_out = (struct gf_auth_mac){0};
    memcpy(to_dialler_out->key, keys, 32);
    memcpy(to_acceptor_out->key, keys + 32, 32);
    gf_auth_forget(keys, sizeof keys);
}

static void count_put(unsigned char *out, uint64_t count)
{
    gf_put_u64(&(struct gf_put){out, sizeof count}, count);
}

/* BLAKE2b(key of the direction; number of the frame, frame) */
void gf_auth_mac_put(struct gf_auth_mac *mac, const void *head, size_t head_bytes, const void *body,
                     size_t body_bytes, unsigned char *mac_out)
{
    crypto_generichash_state hash;
    unsigned char count[8];
    count_put(count, mac->count++);
    (void)crypto_generichash_init(&hash, mac->key, sizeof mac->key, GF_AUTH_MAC_BYTES);
    (void)crypto_generichash_update(&hash, count, sizeof count);
    (void)crypto_generichash_update(&hash, head, head_bytes);
    if (body_bytes > 0) (void)crypto_generichash_update(&hash, body, body_bytes);
    (void)crypto_generichash_final(&hash, mac_out, GF_AUTH_MAC_BYTES);
    gf_auth_forget(&hash, sizeof hash);
}

bool gf_auth_mac_fits(struct gf_auth_mac *mac, const void *frame, size_t bytes,
                      const unsigned char *found)
{
    unsigned char expected[GF_AUTH_MAC_BYTES];
    gf_auth_mac_put(mac, frame, bytes, NULL, 0, expected);
    return secret_fits(expected, found, sizeof expected);
}
