// What libtutti_malloc.so exports beside the functions of the C library that it stands in for.
#pragma once

#include "memory/preloaded_heap.h"

extern "C" {
tutti::PreloadedRegion tutti_malloc_region_1;
}
