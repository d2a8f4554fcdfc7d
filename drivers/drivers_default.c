/* The default drivers. They have an object of their own: a program that defines this name itself
 * takes neither this object from the archive nor the drivers that it names. */
#include "drivers/drivers.h"

const struct gf_drivers *const gf_drivers_default = &gf_drivers_all;
