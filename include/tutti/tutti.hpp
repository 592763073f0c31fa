// RAII C++ over tutti.h.
#pragma once
#include <tutti/tutti.h>
