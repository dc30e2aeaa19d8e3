// The second translation unit that includes the header: nothing in it is defined twice.
#include "slipring.hpp"
#include "slipring.hpp"

std::uint32_t version_of_the_other_unit();

std::uint32_t version_of_the_other_unit() { return SLIPRING_VERSION; }
