/* Saving and loading what a run depends on (state_format.h). Everything is checked before anything
 * is written. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "drivers/base/fnv.h"
#include "lib/device/device.h"
#include "lib/state/state_format.h"
#include "lib/core/accessors.h"
#include "lib/core/arena.h"
#include "lib/core/applied.h"
#include "lib/core/extra.h"
#include "lib/core/device_work.h"
#include "lib/settings/settings.h"
#include "drivers/base/arithmetic.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "head and pools are written as they lie");

enum { WEIGHT, MOMENTUM_DENSE, MOMENTUM_SPARSE, MOMENT2, HISTORY, POOLS };

/* Where the parts of this context's state lie, in bytes. */
struct parts {
    uint64_t selection, extra, checksum, total;
    struct {
        gf_mem pool;
        uint64_t elem_count; /* 0: it has none */
        uint64_t at;
    } pools[POOLS];
};

static uint64_t part_bytes(uint64_t elem_count)
{
    return gf_align_up(elem_count * sizeof(float), 8);
}

_Static_assert(GF_OPTIMIZER_POOLS == 4, "each pool but half weights is saved here");
static struct parts parts_of(const gf_context *gf)
{
    const uint64_t all = gf->pool.elem_count;
    const uint64_t sparse = gf->sparse.elem_count;
    gf_mem momentum = gf->optimizer.momentum;
    gf_mem dense = (momentum != 0) ? momentum + sparse * sizeof(float) : 0;
    struct parts parts = {.selection = sizeof(struct gf_state_head),
                          .pools = {[WEIGHT] = {gf->optimizer.weight, all, 0},
                                    [MOMENTUM_DENSE] = {dense, all - sparse, 0},
                                    [MOMENTUM_SPARSE] = {momentum, sparse, 0},
                                    [MOMENT2] = {gf->optimizer.moment2, all, 0},
                                    [HISTORY] = {gf->sparse.history, sparse, 0}}};
    uint64_t at = parts.selection + part_bytes(gf->sparse.chunk_count);
    for (uint32_t p = 0; p < POOLS; p++) {
        if (parts.pools[p].pool == 0) parts.pools[p].elem_count = 0;
        parts.pools[p].at = at;
        at += part_bytes(parts.pools[p].elem_count);
        if (p == WEIGHT) parts.extra = at;
        if (p == WEIGHT) at += gf_extra_bytes(gf);
    }
    parts.checksum = at;
    parts.total = parts.checksum + sizeof(uint64_t);
    return parts;
}

static uint32_t flags_of(const gf_context *gf)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint32_t flags = 0;
    if (sparse->selected_count > 0) flags |= GF_STATE_KNOWN;
    if (!sparse->history_empty) flags |= GF_STATE_WAITING;
    if (sparse->local_begun) flags |= GF_STATE_LOCAL;
    if (gf->config.loss_scale.enabled) flags |= GF_STATE_SCALING;
    return flags;
}

static struct gf_state_head head_of(const gf_context *gf)
{
    const struct gf_sparse *sparse = &gf->sparse;
    struct gf_state_head head = {.magic = GF_STATE_MAGIC,
                                 .version = GF_STATE_VERSION,
                                 .head_bytes = sizeof head,
                                 .total_bytes = parts_of(gf).total,
                                 .tensors_hash = gf->tensors_hash ^ gf_extra_hash(&gf->config),
                                 .elem_count = gf->pool.elem_count,
                                 .sparse_elem_count = sparse->elem_count,
                                 .step = gf->step.number,
                                 .samples_before = gf->samples_before,
                                 .tensor_count = gf->tensor_count,
                                 .optimizer = (uint32_t)gf->config.optimizer.kind,
                                 .has_momentum = (gf->optimizer.momentum != 0) ? 1 : 0,
                                 .chunk_count = sparse->chunk_count,
                                 .world = gf->world,
                                 .flags = flags_of(gf),
                                 .selected_count = sparse->selected_count,
                                 .scale_good = gf->loss_scale.good,
                                 .scale_bad = gf->loss_scale.bad,
                                 .rank = gf->rank,
                                 .updates = gf->optimizer.updates};
    memcpy(&head.scale_bits, &gf->loss_scale.value, sizeof head.scale_bits);
    /* What chunks are made of: without a sparse part these settings change nothing, and a state may
     * be loaded under others. */
    if (sparse->elem_count > 0) {
        head.sparse_momentum = (uint32_t)gf->config.sparse.momentum;
        head.average = (uint32_t)gf->config.exchange.average - GF_AVERAGE_SUM;
        head.chunk_elems = (uint32_t)sparse->chunk_elems;
    }
    return head;
}

static uint64_t common_hash(const struct gf_state_head *head, const struct parts *parts,
                            const unsigned char *data)
{
    struct gf_state_head common = *head;
    uint64_t end =
        parts->pools[((head->flags & GF_STATE_LOCAL) != 0) ? MOMENTUM_SPARSE : HISTORY].at;
    uint64_t hash;
    common.rank = 0;
    common.common_hash = 0;
    hash = gf_fnv_words(GF_FNV_START, &common, sizeof common);
    return gf_fnv_words(hash, data + parts->selection, end - parts->selection);
}

/* ---- values ----
 * A run that has diverged may hold a value that is not finite, and its state is saved: a program
 * may look at it. Nothing that is trained from it would ever be finite again, and every step after
 * it is skipped, so it is not loaded. */

#define GF_STATE_POOL_TEXT 96u

#define VALUE_BLOCK 256u /* 1 KiB of stack */

/* The highest bit of the answer: it is not finite; of below_out: it is below 0, and not -0. */
static inline uint32_t value_sign_bits(uint32_t bits, uint32_t *below_out)
{
    const uint32_t magnitude = bits & 0x7fffffffu;
    *below_out = (magnitude + 0x7fffffffu) & bits;
    return magnitude + 0x00800000u; /* all bits of the exponent are set */
}

/* The first of values[count] that is not finite or, where that is asked, below 0; count: none. A
 * block at a time without a branch: a state may have gigabytes. */
static uint64_t value_wrong(const unsigned char *values, uint64_t count, bool ask_below)
{
    const uint32_t asked = ask_below ? 0x80000000u : 0;
    uint32_t bits[VALUE_BLOCK];
    for (uint64_t first = 0; first < count; first += VALUE_BLOCK) {
        const size_t block = (count - first < VALUE_BLOCK) ? (size_t)(count - first) : VALUE_BLOCK;
        uint32_t wrong = 0;
        uint32_t below;
        memcpy(bits, values + first * sizeof *bits, block * sizeof *bits);
        memset(bits + block, 0, (VALUE_BLOCK - block) * sizeof *bits);
        for (uint32_t i = 0; i < VALUE_BLOCK; i++) {
            wrong |= value_sign_bits(bits[i], &below);
            wrong |= below & asked;
        }
        for (uint32_t i = 0; ((wrong >> 31) != 0) && (i < block); i++)
            if (((value_sign_bits(bits[i], &below) | (below & asked)) >> 31) != 0) return first + i;
    }
    return count;
}

/* false: text_out[GF_STATE_POOL_TEXT] names a value with which nothing can be trained. */
static bool pools_valid(const struct parts *parts, const unsigned char *data, char *text_out)
{
    static const char *const names[POOLS] = {[WEIGHT] = "weight",
                                             [MOMENTUM_DENSE] = "momentum of the dense part",
                                             [MOMENTUM_SPARSE] = "momentum of the sparse part",
                                             [MOMENT2] = "second moment",
                                             [HISTORY] = "history"};
    for (uint32_t p = 0; p < POOLS; p++) {
        const uint64_t count = parts->pools[p].elem_count;
        const unsigned char *values = data + parts->pools[p].at;
        const uint64_t at = value_wrong(values, count, p == MOMENT2);
        float value;
        if (at == count) continue;
        memcpy(&value, values + at * sizeof value, sizeof value);
        (void)snprintf(text_out, GF_STATE_POOL_TEXT, "%s: element %llu of %llu is %g", names[p],
                       (unsigned long long)at, (unsigned long long)count, (double)value);
        return false;
    }
    return true;
}

/* Does each rank have a part of the state that no other rank has? */
static bool has_own(const struct gf_state_head *head)
{
    return (head->sparse_elem_count > 0) &&
           ((head->flags & (GF_STATE_WAITING | GF_STATE_LOCAL)) != 0);
}

static gf_status state_enter(gf_context *gf, const char *call)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (gf->phase == GF_PHASE_STEP)
        return gf_refuse(gf, GF_ERR_STATE,
                         "%s: step %llu is under way; allowed is a call between steps", call,
                         (unsigned long long)gf->step.number);
    if (gf->phase != GF_PHASE_READY)
        return gf_refuse(gf, GF_ERR_STATE, "%s: the context is not open", call);
    return gf_requests_idle(gf) ? GF_OK
                                : gf_refuse(gf, GF_ERR_STATE, "%s: requests are under way", call);
}

/* ---- saving ---- */

uint64_t gf_state_bytes(const gf_context *gf)
{
    return (gf_own(gf) == GF_OK) ? parts_of(gf).total : 0;
}

static gf_status pools_save(gf_context *gf, const struct parts *parts, unsigned char *out)
{
    gf_status status = GF_OK;
    for (uint32_t p = 0; (p < POOLS) && (status == GF_OK); p++) {
        uint64_t bytes = parts->pools[p].elem_count * sizeof(float);
        unsigned char *to = out + parts->pools[p].at;
        memset(to + bytes, 0, gf_align_up(bytes, 8) - bytes);
        status = gf_pool_read(gf, to, parts->pools[p].pool, bytes);
    }
    gf_extra_save(gf, out + parts->extra);
    return status;
}

gf_status gf_state_save(gf_context *gf, void *data, uint64_t bytes)
{
    GF_COMPUTES();
    gf_status status = state_enter(gf, __func__);
    unsigned char *out = data;
    struct gf_state_head head;
    struct parts parts;
    char text[GF_STATE_POOL_TEXT];
    uint64_t checksum;
    if (status < 0) return status;
    if (gf_has_weights(gf) && (gf->step.state == GF_STEP_WHOLE) && !gf->step.skipped)
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_state_save: step %llu is not applied yet; %s comes first",
                         (unsigned long long)gf->step.number,
                         (gf->optimizer.weight != 0) ? "gf_update()" : "gf_updated()");
    if (gf->given.owed) return gf_refuse(gf, GF_ERR_STATE, "gf_state_save: " GF_GIVE_FIRST);
    parts = parts_of(gf);
    if ((data == NULL) || (bytes != parts.total))
        return gf_refuse(gf, GF_ERR_PARAM,
                         "gf_state_save: %llu bytes at %p; gf_state_bytes() says %llu",
                         (unsigned long long)bytes, data, (unsigned long long)parts.total);
    head = head_of(gf);
    memset(out + parts.selection, 0, parts.pools[WEIGHT].at - parts.selection);
    if (head.selected_count > 0)
        memcpy(out + parts.selection, gf->sparse.selection,
               head.selected_count * sizeof *gf->sparse.selection);
    if ((status = pools_save(gf, &parts, out)) < 0) return status;
    if (!pools_valid(&parts, out, text))
        gf_log_line(
            &gf->log, GF_LOG_WARN,
            "rank %u: gf_state_save: no run can go on from this state, keep the one before: "
            "%s",
            gf->rank, text);
    head.common_hash = common_hash(&head, &parts, out);
    memcpy(out, &head, sizeof head);
    checksum = gf_fnv_words(GF_FNV_START, out, parts.checksum);
    memcpy(out + parts.checksum, &checksum, sizeof checksum);
    return GF_OK;
}

/* ---- checking ---- */

/* Is it a state, of a version that this library reads? */
static gf_status head_check(gf_context *gf, const char *call, const unsigned char *data,
                            uint64_t bytes, struct gf_state_head *head_out)
{
    const uint64_t least = sizeof *head_out + sizeof(uint64_t);
    if ((data == NULL) || ((uintptr_t)data % 8 != 0))
        return gf_refuse(gf, GF_ERR_PARAM, "%s: data at %p; it must be aligned to 8 bytes", call,
                         (const void *)data);
    if (bytes < least)
        return gf_refuse(gf, GF_ERR_DATA, "%s: %llu bytes; a state has %llu at least", call,
                         (unsigned long long)bytes, (unsigned long long)least);
    memcpy(head_out, data, sizeof *head_out);
    if (head_out->magic != GF_STATE_MAGIC)
        return gf_refuse(gf, GF_ERR_DATA,
                         "%s: this is no state: it begins with %016llx, a state with %016llx", call,
                         (unsigned long long)head_out->magic, (unsigned long long)GF_STATE_MAGIC);
    if (head_out->version != GF_STATE_VERSION)
        return gf_refuse(gf, GF_ERR_DATA, "%s: format version %u; this library reads %u", call,
                         head_out->version, GF_STATE_VERSION);
    return GF_OK;
}

static gf_status checksum_check(gf_context *gf, const char *call, const unsigned char *data,
                                uint64_t bytes)
{
    uint64_t checksum;
    uint64_t found = gf_fnv_words(GF_FNV_START, data, bytes - sizeof checksum);
    memcpy(&checksum, data + bytes - sizeof checksum, sizeof checksum);
    if (found == checksum) return GF_OK;
    return gf_refuse(gf, GF_ERR_DATA,
                     "%s: the state is corrupt: its checksum is %016llx, its bytes give %016llx",
                     call, (unsigned long long)checksum, (unsigned long long)found);
}

/* "params, m, v" */
static void extra_names(const gf_context *gf, char *text_out, size_t bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (uint32_t i = 0; (i < gf->config.state_extra_count) && (used < bytes); i++)
        used += (size_t)snprintf(text_out + used, bytes - used, "%s%.40s", (i > 0) ? ", " : "",
                                 gf->config.state_extra[i].name);
}

/* The rest of the state has the same size here and there, so the bytes that are left are those of
 * state_extra. A state has only one hash of these regions and of the tensors. */
static gf_status names_refuse(gf_context *gf, const char *call, const struct gf_state_head *head,
                              const struct gf_state_head *here)
{
    uint64_t ours = gf_extra_bytes(gf);
    uint64_t theirs = head->total_bytes - (here->total_bytes - ours);
    char names[100];
    extra_names(gf, names, sizeof names);
    if (head->tensors_hash == gf->tensors_hash)
        return gf_refuse(gf, GF_ERR_DATA,
                         "%s: the state has no state_extra, this program has %u regions: %s", call,
                         gf->config.state_extra_count, names);
    if (theirs != ours)
        return gf_refuse(gf, GF_ERR_DATA,
                         "%s: the state is of another run: state_extra has %llu bytes there, %llu "
                         "here%s%s%s",
                         call, (unsigned long long)theirs, (unsigned long long)ours,
                         (ours > 0) ? " (" : "", names, (ours > 0) ? ")" : "");
    return gf_refuse(gf, GF_ERR_DATA,
                     "%s: the state is of another model: tensors differ in names, sizes, flags, "
                     "types or order%s%s%s",
                     call, (ours > 0) ? ", or the regions of state_extra in theirs: " : "", names,
                     (ours > 0) ? " here" : "");
}

/* Is it of a run like this one? The model is checked first: if only a part of a larger model's
 * state was read, it is more useful to learn that the model differs than that the state is cut. */
static gf_status kin_check(gf_context *gf, const char *call, const struct gf_state_head *head)
{
    const struct gf_state_head here = head_of(gf);
    const struct {
        const char *what; /* a key: its values have names */
        uint64_t theirs, ours;
    } rows[] = {
        {"tensors", head->tensor_count, here.tensor_count},
        {"elements of the pool", head->elem_count, here.elem_count},
        {"optimizer.kind", head->optimizer, here.optimizer}, /* from here on: of the model's run */
        {"optimizer.momentum above 0", head->has_momentum, here.has_momentum},
        {"elements of the sparse part", head->sparse_elem_count, here.sparse_elem_count},
        {"sparse.chunk_elems", head->chunk_elems, here.chunk_elems},
        {"chunks", head->chunk_count, here.chunk_count},
        {"sparse.momentum", head->sparse_momentum, here.sparse_momentum},
        {"exchange.average", (uint64_t)head->average + GF_AVERAGE_SUM,
         (uint64_t)here.average + GF_AVERAGE_SUM},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char there_text[GF_SETTING_NAME_BYTES];
        char here_text[GF_SETTING_NAME_BYTES];
        if (rows[i].theirs == rows[i].ours) continue;
        return gf_refuse(gf, GF_ERR_DATA, "%s: the state is of another %s: %s: %s there, %s here",
                         call, (i < 2) ? "model" : "run", rows[i].what,
                         gf_setting_name(rows[i].what, rows[i].theirs, there_text),
                         gf_setting_name(rows[i].what, rows[i].ours, here_text));
    }
    return (head->tensors_hash == here.tensors_hash) ? GF_OK : names_refuse(gf, call, head, &here);
}

static bool scale_valid(uint32_t bits)
{
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return (scale >= 0x1p-32f) && (scale <= 0x1p32f) && ((bits & 0x7fffffu) == 0);
}

/* NULL, or which field of the head has a value that no save writes. */
static const char *head_wrong(const gf_context *gf, const struct gf_state_head *head)
{
    const bool waits = (head->flags & GF_STATE_WAITING) != 0;
    const bool local = (head->flags & GF_STATE_LOCAL) != 0;
    const bool scaling = (head->flags & GF_STATE_SCALING) != 0;
    if ((head->world == 0) || (head->world > GF_WORLD_MAX) || (head->rank >= head->world))
        return "rank and world";
    if (head->step > GF_STATE_STEPS_MAX) return "step";
    /* each is of a whole step; where the library updates nothing there are none */
    if ((head->updates > head->step) ||
        ((head->updates > 0) && (head->optimizer == GF_OPTIMIZER_NONE)))
        return "updates";
    if (head->samples_before > GF_STATE_SAMPLES_MAX) return "samples";
    if ((head->flags & ~GF_STATE_FLAGS) != 0) return "flags";
    if (waits && (head->sparse_elem_count == 0)) return "a history";
    if (local && ((head->sparse_elem_count == 0) ||
                  (gf->config.sparse.momentum == GF_SPARSE_MOMENTUM_REDUCED)))
        return "local momentum";
    if (!scale_valid(head->scale_bits)) return "loss scale";
    /* a good step ends a run of bad ones, and the other way round */
    if ((head->scale_good > GF_STATE_STREAK_MAX) || (head->scale_bad > GF_STATE_STREAK_MAX) ||
        ((head->scale_good > 0) && (head->scale_bad > 0)) ||
        (!scaling && ((head->scale_good > 0) || (head->scale_bad > 0))))
        return "steps of the loss scale";
    if ((head->selected_count > head->chunk_count) ||
        (((head->flags & GF_STATE_KNOWN) != 0) != (head->selected_count > 0)))
        return "number of selected chunks";
    return NULL;
}

/* Values that no save writes: the checksum holds, so it was not an accident, but nothing may be
 * done with them. */
static gf_status values_check(gf_context *gf, const char *call, const struct gf_state_head *head,
                              const struct parts *parts, const unsigned char *data)
{
    const char *wrong = head_wrong(gf, head);
    char text[GF_STATE_POOL_TEXT];
    uint32_t above = 0; /* the lowest chunk that the next one may be */
    for (uint32_t i = 0; (wrong == NULL) && (i < head->selected_count); i++) {
        uint32_t chunk;
        memcpy(&chunk, data + parts->selection + i * sizeof chunk, sizeof chunk);
        if ((chunk < above) || (chunk >= head->chunk_count)) wrong = "selection";
        above = chunk + 1;
    }
    if ((wrong == NULL) && (common_hash(head, parts, data) != head->common_hash))
        wrong = "hash of the common part";
    if (wrong != NULL)
        return gf_refuse(gf, GF_ERR_DATA, "%s: the state holds what no save writes: %s", call,
                         wrong);
    if (!pools_valid(parts, data, text))
        return gf_refuse(gf, GF_ERR_DATA, "%s: the state cannot be trained on: %s", call, text);
    return GF_OK;
}

static gf_status state_check(gf_context *gf, const char *call, const void *data, uint64_t bytes,
                             struct gf_state_head *head_out, struct parts *parts_out)
{
    gf_status status = head_check(gf, call, data, bytes, head_out);
    bool is_whole;
    if (status < 0) return status;
    is_whole = (head_out->head_bytes == sizeof *head_out) && (head_out->total_bytes == bytes) &&
               (bytes % 8 == 0);
    if (is_whole && ((status = checksum_check(gf, call, data, bytes)) < 0)) return status;
    if ((status = kin_check(gf, call, head_out)) < 0) return status;
    if (!is_whole || (bytes != parts_of(gf).total))
        return gf_refuse(gf, GF_ERR_DATA,
                         "%s: %llu bytes were handed over, the state says it has %llu", call,
                         (unsigned long long)bytes, (unsigned long long)head_out->total_bytes);
    *parts_out = parts_of(gf); /* the same there: it follows from what was compared */
    return values_check(gf, call, head_out, parts_out, data);
}

/* ---- loading ---- */

/* Loads what only this rank has: pool = factor * from. Factor 1 keeps every bit; 0 is for a rank
 * that was not in the save. */
static gf_status own_load(gf_context *gf, gf_mem pool, const unsigned char *from, uint64_t count,
                          float factor)
{
    gf_status status;
    if (factor == 0.0f)
        status = gf->ops->zero(&gf->queue, pool, count * sizeof(float));
    else if (((status = gf_pool_write(gf, pool, from, count * sizeof(float))) < 0) ||
             (factor == 1.0f))
        return status;
    else
        status =
            gf->ops->cast(&gf->queue, pool, GF_TYPE_F32, pool, GF_TYPE_F32, count, factor, 0, NULL);
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STATE) : GF_OK;
}

/* Loads what each rank has for itself: scaled to this number of ranks, or zeroes on a rank that was
 * not in the save. */
static gf_status pools_load(gf_context *gf, const struct gf_state_head *head,
                            const struct parts *parts, const unsigned char *data, bool was_there)
{
    bool local = (head->flags & GF_STATE_LOCAL) != 0;
    gf_status status = GF_OK;
    for (uint32_t p = 0; (p < POOLS) && (status == GF_OK); p++) {
        bool is_own = (p == HISTORY) || ((p == MOMENTUM_SPARSE) && local);
        status = own_load(gf, parts->pools[p].pool, data + parts->pools[p].at,
                          parts->pools[p].elem_count,
                          !is_own     ? 1.0f
                          : was_there ? gf_sparse_world_factor(gf, head->world)
                                      : 0.0f);
    }
    gf_extra_load(gf, data + parts->extra);
    if ((status == GF_OK) && (gf->optimizer.half != 0)) status = gf_half_refresh(gf);
    return status;
}

static void values_load(gf_context *gf, const struct gf_state_head *head, const struct parts *parts,
                        const unsigned char *data)
{
    struct gf_sparse *sparse = &gf->sparse;
    gf->step = (struct gf_step){.number = head->step, .gradient_scale = 1.0f};
    gf->given = (struct gf_given){.broadcasts = (head->step == 0) ? 1 : 0};
    gf->samples_before = head->samples_before;
    gf->optimizer.updates = head->updates;
    sparse->history_empty = (head->flags & GF_STATE_WAITING) == 0;
    sparse->local_begun = (head->flags & GF_STATE_LOCAL) != 0;
    sparse->selected_count = head->selected_count;
    sparse->sent_count = 0;
    if (head->selected_count > 0)
        memcpy(sparse->selection, data + parts->selection,
               head->selected_count * sizeof *sparse->selection);
    gf->loss_scale.value = gf->config.loss_scale.enabled ? gf->config.loss_scale.initial : 1.0f;
    gf->loss_scale.good = gf->loss_scale.bad = 0;
    if (!gf->config.loss_scale.enabled || ((head->flags & GF_STATE_SCALING) == 0))
        return; /* switched on or off since */
    memcpy(&gf->loss_scale.value, &head->scale_bits, sizeof gf->loss_scale.value);
    gf->loss_scale.good = head->scale_good;
    gf->loss_scale.bad = head->scale_bad;
}

/* What is lost of ranks that are in the save and not in this job. Before the first sparse step no
 * history waits to be sent. */
static void dropped_log(const gf_context *gf, const struct gf_state_head *head,
                        const struct parts *parts)
{
    uint64_t each = has_own(head) ? parts->pools[HISTORY].elem_count : 0;
    if ((head->flags & GF_STATE_LOCAL) != 0) each += parts->pools[MOMENTUM_SPARSE].elem_count;
    if ((head->world <= gf->world) || (each == 0)) return;
    gf_log_line(&gf->log, GF_LOG_WARN,
                "gf_state_load: of a state of %u ranks %u go on: %llu values that waited in "
                "histories are dropped",
                head->world, gf->world, (unsigned long long)((head->world - gf->world) * each));
}

gf_status gf_state_load(gf_context *gf, const void *data, uint64_t bytes)
{
    GF_COMPUTES();
    gf_status status = state_enter(gf, __func__);
    struct gf_state_head head;
    struct parts parts;
    bool was_there;
    if ((status < 0) || ((status = state_check(gf, __func__, data, bytes, &head, &parts)) < 0))
        return status;
    was_there = gf->rank < head.world;
    if (was_there && has_own(&head) && (head.rank != gf->rank))
        return gf_refuse(gf, GF_ERR_DATA,
                         "%s: the state is of rank %u of %u; rank %u of %u loads that of rank %u",
                         __func__, head.rank, head.world, gf->rank, gf->world, gf->rank);
    if ((status = pools_load(gf, &head, &parts, data, was_there)) < 0) return status;
    values_load(gf, &head, &parts, data);
    if (gf->rank == 0) dropped_log(gf, &head, &parts);
    return GF_OK;
}
