/* A network of the reference appliance, on the host or on a GPU by the same code: what the training
 * loop needs to know of it. Weights and gradients lie where the library put them; everything else
 * in one workspace that is laid out once. */
#ifndef GF_TRAIN_NET_H
#define GF_TRAIN_NET_H

#include "gradientflow.h"
#include "tools/train/train_data.h"
#include "tools/train/train_layers.h"

#define NET_TENSORS_MAX 32u

/* How backward tells the library what it has done. All may be NULL; after an error none is called
 * any more. */
struct net_sink {
    void *user;
    gf_status (*ready)(void *user, uint32_t tensor); /* gradient[tensor] is whole */
    gf_status (*poll)(void *user);  /* between two products: move what is on the wire */
    gf_status (*begin)(void *user); /* of a split layer alone: it has exchanged, gradients follow */
};

struct net;

struct net_model {
    const char *name;
    const struct gf_tensor *tensors; /* in the order in which backward ends them */
    uint32_t tensor_count;
    float learning_rate;  /* at a batch of 64 */
    struct {              /* the layer that --split may name */
        const char *name; /* NULL: none */
        uint32_t weight_tensor, in_width, out_width;
    } split;
    uint32_t input_border; /* zeroes around each image in net->input */
    /* Lays the workspace out at base and returns its size in bytes; only measures with base NULL.
     */
    size_t (*layout)(struct net *net, char *base);
    /* Draws the weights. */
    void (*init)(struct net *net, struct data_random *random);
    /* net->logits[net->image_count][DATA_CLASSES] of the images that net_load() brought. */
    void (*forward)(struct net *net);
    /* net->logits holds d loss / d logits; writes every gradient and declares each as soon as it is
     * whole. */
    gf_status (*backward)(struct net *net);
};
extern const struct net_model net_cnn, net_linear;

struct net {
    const struct net_model *model;
    const struct net_layers *layers;
    struct device *device; /* NULL on the host. What follows lies in its memory, or in the host's */
    uint32_t images_max;   /* room in the workspace */
    uint32_t image_count;  /* in it now */
    float *weight[NET_TENSORS_MAX];
    float *gradient[NET_TENSORS_MAX];
    struct net_sink sink;
    gf_status status; /* of the batch at hand: the first error of the sink, which backward ends
                         with, or of the device */
    struct net_split
        *split;        /* a layer that the ranks divide between them (train_split.h); NULL: none */
    gf_type precision; /* what layers hand on is rounded to it: outputs, and gradients of outputs */
    bool training;     /* a split layer computes with the ranks' rows; true after net_open() */
    /* All by images_max, in the workspace; a network uses what it needs. */
    float *input;     /* [] images of one channel with the model's border */
    uint8_t *labels;  /* [] */
    float *logits;    /* [][DATA_CLASSES] */
    float *pooled1;   /* [][18][18][32], the first convolution's result with a border */
    uint8_t *winner1; /* [][14][14][32] */
    float *pooled2;   /* [][7][7][64] */
    uint8_t *winner2; /* [][7][7][64] */
    float *hidden;    /* [][512] */
    float *hidden_gradient;
    float *pooled2_gradient;
    float *pooled1_gradient;
    /* Of a few images at a time, so that it stays in the cache. */
    float *unfolded;
    float *convolved;
};

/* "cnn", "linear"; NULL if there is none of that name. */
const struct net_model *net_model_find(const char *name);
/* Bytes of a workspace for images_max images. */
size_t net_measure(const struct net_model *model, const struct net_layers *layers,
                   uint32_t images_max);
/* workspace is 64-byte aligned, net_measure() bytes and the caller's until the net is no longer
 * used; a device's is zeroes. The caller sets weight, gradient and sink afterwards. */
void net_open(struct net *net, const struct net_model *model, const struct net_layers *layers,
              struct device *device, uint32_t images_max, void *workspace);
/* On the host. Brings images index[0 .. count), count <= images_max, of the set in, as numbers of
 * mean 0 and deviation 1. With index NULL images first .. first + count. */
void net_load(struct net *net, const struct data_set *set, const uint32_t *index, uint32_t first,
              uint32_t count);

/* For the models: the next size_bytes of the workspace, aligned for vectors and for a GPU; NULL
 * while only measuring. */
void *net_take(char *base, size_t *used_bytes, size_t size_bytes);
void net_begin(struct net *net);
void net_ready(struct net *net, uint32_t tensor);
void net_poll(struct net *net);
/* A fully connected layer, its bias the next tensor: out[images][out_width] of
 * in[images][in_width]; its gradients, declared ready. net_splits(): its rows are the ranks', and
 * split_backward() makes them, before net_begin(). */
void net_full_backward(struct net *net, uint32_t weight_tensor, const float *in, size_t in_width,
                       const float *out_gradient, size_t out_width);
void net_full_forward(struct net *net, uint32_t weight_tensor, const float *in, size_t in_width,
                      float *out, size_t out_width, bool relu);
bool net_splits(const struct net *net, uint32_t weight_tensor);
/* data[count], which a layer is about to hand on, becomes what net->precision holds of it. */
void net_round(const struct net *net, float *data, uint64_t count);
/* data[count] drawn with mean 0 and variance 2 / fan_in (He). */
void net_init_normal(float *data, uint64_t count, uint32_t fan_in, struct data_random *random);

#endif
