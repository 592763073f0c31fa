// All of the module as one unit: PyTorch's headers, which take longer to compile than the rest, are read once.
#include "module.cc"

#include "backend.cc"
#include "devices.cc"
