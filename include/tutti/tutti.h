/* The C interface of Tutti, a library of collective operations among ranks that are threads, processes or hosts.
 *
 * Words. A *communicator* joins `nranks` ranks, numbered from 0. A *collective* is called by every rank of a
 * communicator, in the same order, with the same count, type, operator and root; it returns the same result code
 * everywhere, or an error that says which rank did not do its part. Counts are in elements, never in bytes.
 *
 * Errors. Every function that can fail returns a tuttiResult_t. The full sentence (which argument, which rank, which
 * step, why) is kept until the next call of the same thread: tuttiGetLastError(). A call that is refused for its
 * arguments (tuttiInvalidArgument, tuttiInvalidUsage) has done nothing: the communicator stays usable. Any other error
 * on a communicator is final: every later call on it returns the same error, and it should be destroyed.
 *
 * Threads. Different communicators may be used from different threads at the same time, in any order. One
 * communicator is used by one thread at a time, except tuttiCommAbort and tuttiCommGetAsyncError, which any thread
 * may call at any time.
 *
 * Streams. A call whose `stream` is NULL runs on the calling thread and returns when its result is in place. A call on
 * a host stream (tuttiStreamCreate) returns at once; its buffers belong to the library until the stream has passed it
 * (tuttiStreamSynchronize). The operations of one communicator run in the order of the calls, on whatever streams.
 *
 * Waiting. Every wait ends: with the result, with the failure of a rank, or at the communicator's deadline
 * (tuttiConfig_t::timeout_ms).
 */
#ifndef TUTTI_H_
#define TUTTI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0
/* One number for comparison: 10000 * major + 100 * minor + patch. */
#define TUTTI_VERSION (10000 * TUTTI_MAJOR + 100 * TUTTI_MINOR + TUTTI_PATCH)

/* A rank's membership in a communicator. Made by tuttiCommInit*, freed by tuttiCommDestroy or tuttiCommAbort. */
typedef struct tuttiComm* tuttiComm_t;
/* An ordered queue of operations: NULL (the calling thread) or one made by tuttiStreamCreate. */
typedef struct tuttiStream* tuttiStream_t;

/* In C++ an enumeration may hold only its named values unless its type is fixed; a wrong one from C shall be refused. */
#ifdef __cplusplus
#define TUTTI_ANY_INT : int
#else
#define TUTTI_ANY_INT
#endif

/* The first eight values are NCCL's. */
typedef enum TUTTI_ANY_INT {
  tuttiSuccess = 0,
  tuttiDeviceError = 1,     /* a GPU or its driver refused */
  tuttiSystemError = 2,     /* the operating system refused; the sentence names the call and the reason */
  tuttiInternalError = 3,   /* a fault of the library itself */
  tuttiInvalidArgument = 4, /* an argument has a value that it cannot have; nothing was done */
  tuttiInvalidUsage = 5,    /* the call is not allowed now (a wrong order of calls, a use after an end); nothing was done */
  tuttiRemoteError = 6,     /* another rank died, left or failed; the sentence names it */
  tuttiInProgress = 7,      /* not yet finished: no error */
  tuttiTimeout = 8,         /* the deadline passed; the sentence names the rank that was waited for */
  tuttiMismatch = 9,        /* ranks called different operations; the sentence shows both calls */
  tuttiAborted = 10,        /* tuttiCommAbort was called on this rank or another */
  tuttiUnsupported = 11     /* a valid request that this build or machine cannot serve */
} tuttiResult_t;

/* Element types; the values are NCCL's. 8- and 16-bit floats are added in float32 within each reduction pass. */
typedef enum TUTTI_ANY_INT {
  tuttiInt8 = 0, tuttiChar = 0,
  tuttiUint8 = 1,
  tuttiInt32 = 2, tuttiInt = 2,
  tuttiUint32 = 3,
  tuttiInt64 = 4,
  tuttiUint64 = 5,
  tuttiFloat16 = 6, tuttiHalf = 6,
  tuttiFloat32 = 7, tuttiFloat = 7,
  tuttiFloat64 = 8, tuttiDouble = 8,
  tuttiBfloat16 = 9,
  tuttiFloat8e4m3 = 10, /* OCP E4M3: no infinity, overflow saturates to +-448 */
  tuttiFloat8e5m2 = 11, /* OCP E5M2: infinities, overflow saturates to +-57344 unless an input was infinite */
  tuttiNumTypes = 12
} tuttiDataType_t;

/* Reduction operators; the values are NCCL's. Integers wrap around. Floating min and max return NaN if any input is
 * NaN, and order -0 before +0. Avg is the sum divided by the number of ranks; integers truncate towards zero. */
typedef enum TUTTI_ANY_INT {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMax = 2,
  tuttiMin = 3,
  tuttiAvg = 4,
  tuttiNumOps = 5
} tuttiRedOp_t;
#undef TUTTI_ANY_INT

#define TUTTI_UNIQUE_ID_BYTES 128
/* Where the ranks of one job meet, and the job's secret key. Made on one rank, carried to the others by the caller
 * (a file, MPI_Bcast, a store). Whoever knows these bytes can join the job; nobody else can. */
typedef struct { char internal[TUTTI_UNIQUE_ID_BYTES]; } tuttiUniqueId;

/* Settings of one communicator. Start from TUTTI_CONFIG_INITIALIZER; a field left at its initial value means "decide
 * from the environment, else the default". `size` lets old programs run with new libraries. */
typedef struct {
  size_t size;          /* sizeof(tuttiConfig_t) as the caller was compiled */
  uint32_t version;     /* TUTTI_VERSION as the caller was compiled */
  int32_t timeout_ms;   /* longest wait of one operation and of the set-up, in ms; > 0. -1: TUTTI_TIMEOUT_MS, else 300000 */
  const char* algorithm;/* name that every collective that has it must use, or NULL. Copied. TUTTI_ALGO overrides */
  const char* transport;/* comma list of transports allowed: "shm,tcp"; or NULL for all. Copied. TUTTI_TRANSPORT overrides */
  const char* interface_name; /* network interfaces allowed, comma list; NULL: all that connect. TUTTI_IFNAME overrides */
  int32_t channels;     /* parallel channels per pair of ranks; -1: chosen from the transports */
} tuttiConfig_t;

#define TUTTI_CONFIG_INITIALIZER { sizeof(tuttiConfig_t), TUTTI_VERSION, -1, NULL, NULL, NULL, -1 }

/* --- Library --------------------------------------------------------------------------------------------------- */

/* Writes TUTTI_VERSION of the library that runs. Errors: InvalidArgument (version is NULL). */
TUTTI_API tuttiResult_t tuttiGetVersion(int* version);

/* A short constant English phrase for a result code; never NULL, also for unknown codes. Owned by the library. */
TUTTI_API const char* tuttiGetErrorString(tuttiResult_t result);

/* The full sentence of the last failed call of this thread, or, where comm is not NULL and has failed, the sentence of
 * its failure. "" where there is none. Owned by the library; valid until this thread's next call of any function. */
TUTTI_API const char* tuttiGetLastError(tuttiComm_t comm);

/* Bytes of one element; 0 for a value that is no type. */
TUTTI_API size_t tuttiTypeSize(tuttiDataType_t type);

/* --- Communicators --------------------------------------------------------------------------------------------- */

/* Opens a meeting place in this process and writes its id. The process that calls this must stay alive until every
 * rank has joined; the place closes by itself after that, or when the set-up deadline has passed.
 * Does not block. Errors: InvalidArgument (id is NULL), SystemError (no socket, no interface). */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* id);

/* Joins the communicator of `id` as `rank` of `nranks` and blocks until all ranks have joined, or the deadline. The
 * ranks may be threads of one process, processes, or hosts, mixed. Inside a group (tuttiGroupStart) the joining is
 * done by tuttiGroupEnd, so that one thread can be several ranks.
 * *comm is owned by the caller from success on; on failure it is set to NULL.
 * Errors: InvalidArgument (comm NULL, nranks < 1, rank outside 0..nranks-1, an id that is none), InvalidUsage (two
 * callers with one rank, ranks that disagree on nranks), Timeout (names the ranks that did not come), SystemError. */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank);

/* As tuttiCommInitRank, with settings; config may be NULL. All ranks should give equal settings. */
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank,
                                                const tuttiConfig_t* config);

/* Makes `ndev` communicator handles in this process, one per rank, in one call. devices lists the GPU of each rank;
 * NULL or -1 entries: host memory. Then each handle is used by a thread of its own, or all of them by one thread
 * inside a group. Writes comms[0..ndev-1]. Errors: as tuttiCommInitRank; Unsupported (a GPU in a build without). */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t* comms, int ndev, const int* devices);

/* Joins as the environment says: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT as torchrun and tutti-run set
 * them, or the variables of Open MPI, MPICH (PMI) and Slurm. config may be NULL. The job's key is TUTTI_JOB_KEY where
 * set (tutti-run sets a fresh one), else it is derived from the launcher's job id, which keeps other jobs out but not
 * an attacker. Errors: as tuttiCommInitRank; InvalidUsage names the variable that is missing or malformed. */
TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t* comm, const tuttiConfig_t* config);

/* The rank that tuttiCommInitEnv would have, the number of ranks and the rank's number on its host, without joining.
 * Any pointer may be NULL. Errors: InvalidUsage as tuttiCommInitEnv. */
TUTTI_API tuttiResult_t tuttiEnvRank(int* rank, int* nranks, int* local_rank);

/* Number of ranks; this rank; its GPU or -1. Do not block. Errors: InvalidArgument (a NULL, or no communicator). */
TUTTI_API tuttiResult_t tuttiCommCount(tuttiComm_t comm, int* count);
TUTTI_API tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int* rank);
TUTTI_API tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int* device);

/* Which transport reaches `peer`: "self", "shm" or "tcp". A constant owned by the library.
 * Errors: InvalidArgument (peer outside 0..nranks-1, name NULL). */
TUTTI_API tuttiResult_t tuttiCommTransport(tuttiComm_t comm, int peer, const char** name);

/* What the communicator would run for a collective of `bytes` bytes: the algorithm's name, a constant owned by the
 * library. collective: "all_reduce", "broadcast" or "barrier". Errors: InvalidArgument. */
TUTTI_API tuttiResult_t tuttiCommAlgorithm(tuttiComm_t comm, const char* collective, size_t bytes, const char** name);

/* Says that this rank will call no more: waits for its own pending operations and tells the others, so that its end is
 * not taken for a failure. Blocks up to the deadline. Collective by courtesy: the others may still finish theirs. */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* Finalizes where that was not done, then frees everything the communicator holds: memory, sockets, threads.
 * comm may be NULL (nothing happens). Errors: InvalidArgument (no live communicator: never made, or destroyed). */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* Ends every pending operation of this communicator, here and on the other ranks, with tuttiAborted. May be called
 * from any thread. The handle stays valid, and failed, until tuttiCommDestroy. Does not block. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* Writes the communicator's state: tuttiSuccess while healthy, else the error that it failed with, also where no call
 * of this rank is pending. May be called from any thread. Does not block. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* state);

/* --- Streams --------------------------------------------------------------------------------------------------- */

/* A host stream: an ordered queue with a thread of its own, so that communication overlaps computation. */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream);
/* Blocks until everything enqueued so far is done, and returns the first error among it since the last call. */
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
/* Success: everything is done. InProgress: not yet. Else the first error. Does not block. */
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
/* Waits for what is enqueued, then ends the stream's thread. stream may be NULL. */
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);

/* --- Collectives ----------------------------------------------------------------------------------------------- */

/* recv[i] = op over all ranks of their send[i], the same bits on every rank. count elements, any alignment.
 * In place where sendbuff == recvbuff; other overlap is refused. count 0 is allowed and still synchronises nothing
 * but the order of calls. Errors: InvalidArgument (a NULL buffer with count > 0; unknown type or operator; count *
 * element size beyond 2^63; overlap), Mismatch, RemoteError, Timeout, Aborted, SystemError. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                       tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);

/* recv[i] = send[i] of `root`, on every rank. sendbuff is read on the root only and may be NULL elsewhere. In place
 * where sendbuff == recvbuff on the root. Errors: as tuttiAllReduce; InvalidArgument (root outside 0..nranks-1). */
TUTTI_API tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                       int root, tuttiComm_t comm, tuttiStream_t stream);

/* Returns once every rank has called it. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* Point to point: the k-th send of a to b meets the k-th receive of b from a; count and type must agree. May block
 * until the peer receives or sends; use a group for exchanges. peer may be the rank itself inside a group.
 * Errors: InvalidArgument (peer outside 0..nranks-1, buffers and types as tuttiAllReduce; peer is the rank itself
 * outside a group), Mismatch, RemoteError, Timeout, Aborted. */
TUTTI_API tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t datatype, int peer,
                                  tuttiComm_t comm, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                                  tuttiStream_t stream);

/* --- Groups ---------------------------------------------------------------------------------------------------- */

/* Calls of this thread between Start and End are collected and run together by the outermost End: sends and receives
 * in any order complete, several communicators of one thread progress together. Calls inside a group check their
 * arguments at once. Groups nest. Errors of End: InvalidUsage (no Start), else the first error of the group. If a call
 * inside the group was refused, End runs nothing and returns that error. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_H_ */
