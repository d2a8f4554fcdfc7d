/* A link whose messages in device memory are told to the CUDA library without a GPU, from post to the end that test()
 * says, as what they are there: accesses by a network card that no stream knows of. */
#ifndef CUDA_CARD_H
#define CUDA_CARD_H

#include "firmware-tests/cuda/fake_cuda.h"
#include "drivers/link.h"

/* Makes *driver, a copy of `honest`, do so. One at a time; the link's open() sets the driver. */
void cuda_card_wrap(struct gf_link_driver *driver, const struct gf_link_driver *honest,
                    const struct fake_cuda_api *fake);
uint64_t cuda_card_messages(void); /* of device memory, since it was wrapped */

#endif
