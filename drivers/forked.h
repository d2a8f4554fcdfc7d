/* Descriptors that a forked child must not keep: with them it would hold a connection open, and
 * nobody would hear when its parent dies. */
#ifndef GF_FORKED_H
#define GF_FORKED_H

/* Lies in the state of what has such descriptors. */
struct gf_forked {
    struct gf_forked *next;                  /* of those that this process has open */
    void (*close)(struct gf_forked *forked); /* in the child, whose memory may be shared with the
                                                parent: it writes nothing */
};

/* One thread opens and closes at a time; others may fork meanwhile. */
void gf_forked_add(struct gf_forked *forked);
void gf_forked_remove(const struct gf_forked *forked);

#endif
