/* A link whose messages in device memory are told to the CUDA library without a GPU, from post to the end that test()
 * says, as what they are there: accesses by a network card that no stream knows of. */
#ifndef CUDA_CARD_H
#define CUDA_CARD_H

#include "firmware-tests/cuda/fake_cuda.h"
#include "drivers/link.h"

/* The driver that does so; one at a time, forgetting what was under way. */
const struct gf_link_driver *cuda_card_wrap(const struct gf_link_driver *driver, const struct fake_cuda_api *fake);
uint64_t cuda_card_messages(void); /* of device memory, since it was wrapped */

#endif
