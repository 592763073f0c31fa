// Functions that run on the host and, where the compiler makes code for a device too, there as well; and how far loops
// are unrolled there.
#pragma once

#ifdef __CUDACC__
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif

#ifdef __CUDA_ARCH__
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_NO_UNROLL _Pragma("unroll 1")
#else
#define TUTTI_UNROLL
#define TUTTI_NO_UNROLL
#endif
