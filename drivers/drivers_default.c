/* Alone in its object: a program that defines this name itself does not take it out of the archive,
 * nor the drivers that it names. */
#include "drivers/drivers.h"

const struct gf_drivers *const gf_drivers_default = &gf_drivers_all;
