/* The second translation unit that includes the header: nothing in it is defined twice. */
#include "slipring.h"
#include "slipring.h"

uint32_t version_of_the_other_unit(void);

uint32_t version_of_the_other_unit(void) { return SLIPRING_VERSION; }
