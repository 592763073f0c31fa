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
 * a host stream (tuttiStreamCreate) does not wait for other ranks; its buffers belong to the library until the stream has passed it
 * (tuttiStreamSynchronize). The operations of one communicator run in the order of the calls, on whatever streams.
 *
 * GPUs (docs/cuda.md). Buffers may lie in the memory of a GPU, of the host, or, by rank, in either. A cudaStream_t, cast to
 * tuttiStream_t, is a stream: the call comes after what is on the stream and before what follows, and returns when it is over
 * (at once with TUTTI_DEVICE_ASYNC=1, which asks more of the program). With NULL, a call on a GPU's memory comes after what
 * is on the GPU's default stream. One communicator uses one GPU.
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
/* An ordered queue of operations: NULL (the calling thread), one made by tuttiStreamCreate, or a cudaStream_t. */
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
  tuttiMismatch = 9,        /* ranks called different operations, or wait for each other in a circle; the sentence shows the calls */
  tuttiAborted = 10,        /* tuttiCommAbort was called on this rank or another, or a group of one failed on another communicator */
  tuttiUnsupported = 11     /* a valid request that this build or machine cannot serve */
} tuttiResult_t;

/* Element types; the values up to 11 are NCCL's. 8- and 16-bit floats are added in float32 within each reduction pass.
 * More types, of any size, are made by tuttiTypeCreate. */
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
  tuttiBool = 12,       /* 1 byte: any value but 0 is true; results are 0 or 1 */
  tuttiInt16 = 13,
  tuttiUint16 = 14,
  tuttiComplex64 = 15,  /* two float32: the real part, then the imaginary part */
  tuttiComplex128 = 16, /* two float64 */
  tuttiFloat32Int32 = 17, /* a value and its index: tuttiFloat32Int32_t */
  tuttiFloat64Int64 = 18,
  tuttiInt32Int32 = 19,
  tuttiInt64Int64 = 20,
  tuttiNumTypes = 21
} tuttiDataType_t;

/* Reduction operators; the values up to 4 are NCCL's. More are made by tuttiRedOpCreate and tuttiRedOpCreatePreMulSum.
 * Which types have which:
 *   integers          sum prod max min avg band bor bxor land lor
 *   floats            sum prod max min avg
 *   complex           sum prod avg
 *   bool              all of integers but avg: sum, max and bor are lor; prod, min and band are land; bxor is not-equal
 *   value and index   minloc maxloc
 * Integers wrap around. Floating min and max return NaN if any input is NaN, and order -0 before +0. Avg is the sum
 * divided by the number of ranks; integers truncate towards zero. land and lor take any value but 0 as true and give 0
 * or 1. minloc and maxloc give the least or greatest value, in the order of min and max, and the least index of those
 * that stand beside it; if a value is NaN, NaN and the least index beside one. */
typedef enum TUTTI_ANY_INT {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMax = 2,
  tuttiMin = 3,
  tuttiAvg = 4,
  tuttiBand = 5, tuttiBor = 6, tuttiBxor = 7,
  tuttiLand = 8, tuttiLor = 9,
  tuttiMinloc = 10, tuttiMaxloc = 11,
  tuttiNumOps = 12
} tuttiRedOp_t;

/* Where tuttiRedOpCreatePreMulSum's scalar is; the values are NCCL's, whose device memory is host memory here, or a device's. */
typedef enum TUTTI_ANY_INT {
  tuttiScalarHostMemory = 0,   /* read each time that a call with the operator begins to run */
  tuttiScalarHostImmediate = 1 /* read once, when the operator is made */
} tuttiScalarResidence_t;

/* What the bits of a result may depend on (docs/determinism.md). In all modes all ranks get the same bits, and the same
 * call on the same communicator gives the same bits again. */
typedef enum TUTTI_ANY_INT {
  tuttiDeterminismBitwise = 0, /* also on the algorithm that is chosen: by size, place, number of ranks */
  tuttiDeterminismStrict = 1,  /* on the inputs in the order of ranks alone: left to right, in passes that are cut alike */
  tuttiDeterminismInvariant = 2 /* on the inputs alone, not on their order nor on which rank gives which: exact sums and
                                   averages, rounded once. Products of floats and operators made by tuttiRedOpCreate
                                   cannot have it: InvalidArgument */
} tuttiDeterminism_t;
#undef TUTTI_ANY_INT

/* Elements of tuttiFloat32Int32 and its kin. */
typedef struct { float value; int32_t index; } tuttiFloat32Int32_t;
typedef struct { double value; int64_t index; } tuttiFloat64Int64_t;
typedef struct { int32_t value; int32_t index; } tuttiInt32Int32_t;
typedef struct { int64_t value; int64_t index; } tuttiInt64Int64_t;

/* Largest element of tuttiTypeCreate, in bytes. */
#define TUTTI_ELEMENT_BYTES_MAX 4096

/* A reduction of the caller's own: inout[i] = in[i] op inout[i] for i < count, where `in` holds what stands left (of the
 * lower ranks, where the operator does not commute). Both are aligned to 64 bytes. Called on the thread that runs the
 * operation (the caller's, or the stream's), often, with any count; must not call Tutti on the same communicator, and
 * must not throw. `context` is the operator's. */
typedef void (*tuttiReduceFunction_t)(const void* in, void* inout, size_t count, void* context);

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
  const char* algorithm;/* name that every collective that has it must use (of the catalog, or of a file named by
                           TUTTI_SCHEDULES), or NULL. Copied. TUTTI_ALGO overrides */
  const char* transport;/* comma list of transports allowed: "shm,tcp"; or NULL for all. Copied. TUTTI_TRANSPORT overrides */
  const char* interface_name; /* network interfaces allowed, comma list; NULL: all that connect. TUTTI_IFNAME overrides */
  int32_t channels;     /* parallel channels per pair of ranks; -1: chosen from the transports */
  int32_t determinism;  /* a tuttiDeterminism_t; -1: bitwise. TUTTI_DETERMINISM overrides */
  int32_t device;       /* number of this rank's GPU, which its buffers and streams are of; -1: that of the first one that it
                           is given. Where all ranks name theirs, they reach each other's memory directly if they can */
} tuttiConfig_t;

#define TUTTI_CONFIG_INITIALIZER { sizeof(tuttiConfig_t), TUTTI_VERSION, -1, NULL, NULL, NULL, -1, -1, -1 }

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
 * inside a group. Writes comms[0..ndev-1]. Errors: as tuttiCommInitRank; Unsupported (a GPU where none is found). */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t* comms, int ndev, const int* devices);

/* Joins as the environment says: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT as torchrun and tutti-run set
 * them, or the variables of Open MPI, MPICH (PMI) and Slurm. config may be NULL. The job's key is TUTTI_JOB_KEY where
 * set (tutti-run sets a fresh one), else it is derived from the launcher's job id, which keeps other jobs out but not
 * an attacker. Errors: as tuttiCommInitRank; InvalidUsage names the variable that is missing or malformed. */
TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t* comm, const tuttiConfig_t* config);

/* The rank that tuttiCommInitEnv would have, the number of ranks and the rank's number on its host, without joining.
 * Any pointer may be NULL. Errors: InvalidUsage as tuttiCommInitEnv. */
TUTTI_API tuttiResult_t tuttiEnvRank(int* rank, int* nranks, int* local_rank);

/* Number of ranks; this rank; its GPU, or -1 where no buffer or stream of one came yet. Do not block. Errors: InvalidArgument (a NULL, or no communicator). */
TUTTI_API tuttiResult_t tuttiCommCount(tuttiComm_t comm, int* count);
TUTTI_API tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int* rank);
TUTTI_API tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int* device);

/* Which transport reaches `peer`: "self", "shm", "verbs" or "tcp". A constant owned by the library.
 * Errors: InvalidArgument (peer outside 0..nranks-1, name NULL). */
TUTTI_API tuttiResult_t tuttiCommTransport(tuttiComm_t comm, int peer, const char** name);

/* What the communicator would run for a collective of `bytes` bytes: the algorithm's name, which lives as long as the
 * communicator. collective: "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter",
 * "all_to_all", "scan", "exscan", "barrier" or a v-form, as "all_gather_v". bytes: of the whole buffer, all ranks' blocks together. Errors: InvalidArgument. */
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

/* --- Communicators from communicators --------------------------------------------------------------------------- */

/* In all of these: collective over the ranks of `comm` that take part, in the same order on all of them; blocks until
 * the new communicator is joined, or its deadline. Inside a group the work is done by tuttiGroupEnd, so that one thread
 * can be several ranks. The new communicator is independent: it may outlive `comm`, and be used by another thread.
 * config may be NULL: then `comm`'s settings hold. *newcomm is owned by the caller from success on, else NULL.
 * Errors of all: InvalidArgument (newcomm NULL, comm no live communicator), InvalidUsage (comm was finalized), the error
 * that comm failed with (but see tuttiCommShrink), Timeout, RemoteError, SystemError. */

#define TUTTI_SPLIT_NOCOLOR (-1)
/* One new communicator for each colour; ranks are ordered by key, equal keys by their rank in comm. A rank that gives
 * TUTTI_SPLIT_NOCOLOR takes part in the call and gets NULL. Errors: InvalidArgument (another colour below 0). */
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm,
                                       const tuttiConfig_t* config);

/* The same ranks once more: its operations are in no order with those of comm. */
TUTTI_API tuttiResult_t tuttiCommDup(tuttiComm_t comm, tuttiComm_t* newcomm, const tuttiConfig_t* config);

#define TUTTI_SHRINK_DEFAULT 0
#define TUTTI_SHRINK_ABORT 1 /* first ends what is pending on comm, on all ranks, as tuttiCommAbort does */
#define TUTTI_SHRINK_AGREE 2 /* excludes all who have died or left; may be added to TUTTI_SHRINK_ABORT */
/* All ranks but the excludeRanksCount that excludeRanksList names, in their order. Only those that stay call it, all with
 * the same list. comm may have failed, for instance because an excluded rank died: then this is how the others go on;
 * comm itself stays failed and is to be destroyed. With TUTTI_SHRINK_AGREE there is no list (NULL, 0): all ranks that live
 * call, agree on who that is, also where some die meanwhile, and return alike: all with the new communicator or all without.
 * Errors: InvalidArgument (a rank outside 0..nranks-1, twice, or the caller's own; a rank that is known to have died is not
 * in the list; a list with TUTTI_SHRINK_AGREE), RemoteError (without TUTTI_SHRINK_AGREE, a rank died that should have
 * joined), Timeout (with TUTTI_SHRINK_AGREE, a rank that lives did not call; names it). */
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, const int* excludeRanksList, int excludeRanksCount,
                                        tuttiComm_t* newcomm, const tuttiConfig_t* config, int shrinkFlags);

/* nranks ranks: those of comm, who keep their numbers (rank is -1 or their own), and newcomers, who give comm NULL, the id
 * and a rank from the old number of ranks on. Exactly one old rank gives the id (tuttiGetUniqueId, called on any rank that
 * stays alive); the others give NULL. Errors: InvalidArgument (nranks not above comm's), InvalidUsage (no id or several,
 * ranks that disagree on nranks). */
TUTTI_API tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nranks, const tuttiUniqueId* id, int rank,
                                      tuttiComm_t* newcomm, const tuttiConfig_t* config);

/* As many ranks as comm has: those that live, which call this and keep their numbers, and newcomers in the place of those
 * that have died or left, who join by the id as any job (tuttiCommInitRank with comm's number of ranks and the number that
 * has become free). Those that live agree on who has gone. Exactly one of them gives the id; the others give NULL. comm
 * may have failed, and stays as it is. Errors: InvalidUsage (no id or several; nobody has died or left), Timeout (a rank
 * that lives did not call, or a newcomer did not come; names it). */
TUTTI_API tuttiResult_t tuttiCommReplace(tuttiComm_t comm, const tuttiUniqueId* id, tuttiComm_t* newcomm,
                                         const tuttiConfig_t* config);

/* Writes the last runs of calls on this communicator (at most 1,024; equal calls in a row are one run) as JSON to `file`:
 * each call with its arguments, how many times it was made, and when first, in ns of this host's monotonic clock. May be
 * called from any thread, also while a call hangs. With TUTTI_RECORD=NAME every rank writes it by itself when the
 * communicator fails, and with TUTTI_RECORD_SIGNAL=USR2 (or another) whenever that signal comes. Errors: InvalidArgument (file NULL), SystemError (names the file and why). */
TUTTI_API tuttiResult_t tuttiCommWriteRecord(tuttiComm_t comm, const char* file);

/* --- Streams --------------------------------------------------------------------------------------------------- */

/* A host stream: an ordered queue with a thread of its own, so that communication overlaps computation. (What is small may begin
 * on the calling thread, and what waits there run on a thread that waits for the stream.) */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream);
/* Blocks until everything enqueued so far is done, and returns the first error among it since the last call. */
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
/* Success: everything is done. InProgress: not yet. Else the first error. Does not block. Of a GPU's stream: what is on it now;
 * Unsupported: it is being captured into a graph. */
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
/* Waits for what is enqueued, then ends the stream's thread. stream may be NULL. */
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);

/* --- Memory ------------------------------------------------------------------------------------------------------ */

/* Memory that the other ranks of this host can reach directly, for every communicator of this process: at least `bytes`
 * bytes, all 0, from a page's start (of more than 4 MiB: from a huge page's, which are asked for). Nothing of it has a
 * name, so nothing is left behind whatever kills the process. Pages that were never touched cost nothing. 0 bytes: *pointer
 * is NULL. After a fork, parent and child share the memory, and for the child it is ordinary memory that it cannot free.
 * Any thread. docs/memory.md says what is gained by it.
 * Errors: InvalidArgument (pointer NULL; more bytes than the host has), SystemError (address space, descriptors). */
TUTTI_API tuttiResult_t tuttiMemAlloc(void** pointer, size_t bytes);

/* Gives memory of tuttiMemAlloc back. NULL: nothing happens. Any thread.
 * No call may still use the memory: not one on a stream that has not passed it, and no prepared one that starts again.
 * Errors: InvalidArgument (pointer is not, or no longer, what tuttiMemAlloc gave), InvalidUsage (it was allocated before a
 * fork by the parent; it is registered, or open as a window); the memory then stays allocated. */
TUTTI_API tuttiResult_t tuttiMemFree(void* pointer);

/* Registers [buff, buff + size) with comm, as NCCL's programs do. Of memory of tuttiMemAlloc, which calls of 64 KiB and
 * more read in place on the ranks of one host, registered or not: until tuttiCommDeregister, or until comm is destroyed,
 * tuttiMemFree refuses to free it. Any other memory: nothing changes for it. Not collective; any thread. *handle is valid
 * until tuttiCommDeregister.
 * Errors: InvalidArgument (comm; buff NULL; size 0; handle NULL; buff + size beyond the memory of tuttiMemAlloc). */
TUTTI_API tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void* buff, size_t size, void** handle);

/* Ends a registration. handle may be NULL (nothing happens). Errors: InvalidArgument (comm; handle is not, or no longer,
 * one that tuttiCommRegister gave for comm). */
TUTTI_API tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void* handle);

/* --- Windows ----------------------------------------------------------------------------------------------------- */

/* Memory of each rank that the other ranks reach without a call of its owner's (docs/windows.md). Names after NCCL's.
 * The calls below run on the calling thread, also inside a group, and may be made by any number of threads at the same
 * time; nothing is atomic but signals. Where ranks share a host and the memory is of tuttiMemAlloc, a put is a copy and a
 * signal an atomic addition; elsewhere a thread of the window moves the bytes.
 * Errors of all: InvalidArgument (window NULL or not live; peer outside 0..nranks-1), InvalidUsage (the window's
 * communicator was destroyed), and the error that the communicator failed with, which ends every wait. */
typedef struct tuttiWindow* tuttiWindow_t;

/* Opens [buffer, buffer + bytes) to all ranks. Sizes may differ; 0 bytes (buffer may be NULL) is allowed, and then the
 * window is for signals and for reaching others. Collective over the ranks of comm, in the same order with their other
 * windows and new communicators, one thread at a time; blocks until all have called, or the deadline. *window is owned
 * by the caller from success on, else NULL. The memory stays where it is until tuttiCommWindowDeregister; tuttiMemFree
 * refuses it. Errors: InvalidArgument (comm; buffer NULL with bytes > 0; window NULL), InvalidUsage (inside a group; comm
 * was finalized), Timeout, RemoteError, SystemError. */
TUTTI_API tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buffer, size_t bytes, tuttiWindow_t* window);

/* Ends the window: blocks until all ranks have called it and all that they put has arrived. No other call on this rank's
 * window may be under way. Frees the window in any case, with the error of the communicator where that has failed. A
 * healthy communicator can be finalized or destroyed only when its windows have been deregistered; one that has failed
 * takes its windows with it. window may be NULL (nothing happens). Errors: InvalidArgument (window is of another
 * communicator), InvalidUsage (inside a group). */
TUTTI_API tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t window);

/* Copies `bytes` bytes to byte `offset` of what `peer` opened. Returns when source may change. The peer sees the bytes
 * after a wait for a later signal of the same thread, or after tuttiWindowFlush has returned and it was told so. peer may
 * be the rank itself. Errors: InvalidArgument (source NULL with bytes > 0; an end beyond the peer's bytes). */
TUTTI_API tuttiResult_t tuttiPut(const void* source, size_t bytes, int peer, size_t offset, tuttiWindow_t window);

/* Copies `bytes` bytes from byte `offset` of what `peer` opened. Returns when they are here. Sees all that this thread put
 * there before. Errors: InvalidArgument (target NULL with bytes > 0; an end beyond the peer's bytes). */
TUTTI_API tuttiResult_t tuttiGet(void* target, size_t bytes, int peer, size_t offset, tuttiWindow_t window);

/* Adds one to the signals of this rank at `peer`, after all that this thread put there before. */
TUTTI_API tuttiResult_t tuttiSignal(int peer, tuttiWindow_t window);

/* Waits until `count` signals of `peer` are here that no other wait has taken, and takes them; then what the peer put
 * before them is here. At most 2^31 - 1 signals of one rank may be untaken. At the communicator's deadline it fails with
 * Timeout. Errors: InvalidArgument (count < 1). */
TUTTI_API tuttiResult_t tuttiWaitSignal(int peer, int count, tuttiWindow_t window);

/* Returns when all that this thread put to `peer` lies in its memory. */
TUTTI_API tuttiResult_t tuttiWindowFlush(int peer, tuttiWindow_t window);

/* --- Types and operators of the caller's own --------------------------------------------------------------------- */

/* A type for elements that are nothing but `element_bytes` bytes: moved by all collectives and point to point, reduced
 * by operators that tuttiRedOpCreate makes for it. A type is a value: the same for one size on all ranks and in all
 * communicators, and never freed. Errors: InvalidArgument (type NULL; element_bytes outside 1..TUTTI_ELEMENT_BYTES_MAX). */
TUTTI_API tuttiResult_t tuttiTypeCreate(tuttiDataType_t* type, size_t element_bytes);

/* An operator by the caller's own function, on elements of `datatype` (one of Tutti's or of tuttiTypeCreate's). It must
 * be associative. commutative 0: it need not commute; operands then stand in the order of ranks, which only some
 * algorithms keep, so that a forced one may not be used. All ranks must give functions that mean the same and the same
 * `commutative`; results have the same bits on all ranks. Every rank makes its own operator, and may pass it to
 * reducing calls on `comm` and to no other communicator, until tuttiRedOpDestroy. At most 256 live at the same time.
 * Does not block. Errors: InvalidArgument (op or function NULL, unknown datatype, comm), InvalidUsage (too many). */
TUTTI_API tuttiResult_t tuttiRedOpCreate(tuttiRedOp_t* op, tuttiReduceFunction_t function, tuttiDataType_t datatype,
                                         int commutative, void* context, tuttiComm_t comm);

/* A sum of inputs that each rank multiplies by its own scalar first, one element of `datatype` (a number: integer, float
 * or complex; the product wraps, or is rounded to the type). An input that is not in place is not changed; where the
 * caller has no output of its size, the library keeps memory of its own, of a part of it (on a device, of v-forms and of
 * several vectors, of its size). As tuttiRedOpCreate otherwise. Host memory that holds the
 * scalar must live as long as the operator. Errors: also InvalidArgument (scalar NULL, a datatype that is no number,
 * residence neither of the two). */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, const void* scalar, tuttiDataType_t datatype,
                                                  tuttiScalarResidence_t residence, tuttiComm_t comm);

/* Ends an operator that was made for comm. Calls already made, on streams too, still use it. Does not block.
 * Errors: InvalidArgument (op was not made, is destroyed, or is of another communicator). */
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* --- Collectives ----------------------------------------------------------------------------------------------- */

/* recv[i] = op over all ranks of their send[i], the same bits on every rank. count elements, any alignment.
 * In place where sendbuff == recvbuff; other overlap is refused. count 0 is allowed and still synchronises nothing
 * but the order of calls. Errors: InvalidArgument (a NULL buffer with count > 0; unknown type or operator, or an operator
 * that the type does not have; count * element size beyond 2^63; overlap), Mismatch, RemoteError, Timeout, Aborted, SystemError. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                       tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);

/* recv[i] = send[i] of `root`, on every rank. sendbuff is read on the root only and may be NULL elsewhere. In place
 * where sendbuff == recvbuff on the root. Errors: as tuttiAllReduce; InvalidArgument (root outside 0..nranks-1). */
TUTTI_API tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                       int root, tuttiComm_t comm, tuttiStream_t stream);

/* recv[i] on `root` = op over all ranks of their send[i]. recvbuff is written on the root only and may be NULL
 * elsewhere. In place where sendbuff == recvbuff on the root. Errors: as tuttiAllReduce; InvalidArgument (root outside
 * 0..nranks-1). */
TUTTI_API tuttiResult_t tuttiReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                    tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream);

/* Prefix sums: recv[i] on rank r = op over the ranks 0 to r, in their order, of their send[i]. avg is the mean of these
 * r + 1 inputs. In place where sendbuff == recvbuff. Errors: as tuttiAllReduce. */
TUTTI_API tuttiResult_t tuttiScan(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                  tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);

/* The same without the rank's own: recv[i] on rank r = op over the ranks 0 to r - 1. On rank 0 recvbuff is neither read
 * nor written, also where it is sendbuff, and may be NULL. */
TUTTI_API tuttiResult_t tuttiExScan(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                    tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);

/* In the following, count is the elements of one block: what one rank gives to or gets from one other. A buffer of
 * blocks has nranks of them, block r at element r * count, any alignment. A block that a call does not name is neither
 * read nor written. Errors of all: as tuttiAllReduce, where count * element size * nranks must stay below 2^63. */

/* recv[r * count + i] = send[i] of rank r, on every rank: recvbuff has nranks * count elements, sendbuff count. In place
 * where sendbuff == recvbuff + rank * count. */
TUTTI_API tuttiResult_t tuttiAllGather(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                       tuttiComm_t comm, tuttiStream_t stream);

/* recv[i] on rank r = op over all ranks of their send[r * count + i]: sendbuff has nranks * count elements, recvbuff
 * count. In place where recvbuff == sendbuff + rank * count; the other blocks of sendbuff stay as they are. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                           tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);

/* recv[r * count + i] on `root` = send[i] of rank r. recvbuff has nranks * count elements on the root; elsewhere it is
 * not written and may be NULL. In place where sendbuff == recvbuff + root * count on the root.
 * Errors: also InvalidArgument (root outside 0..nranks-1). */
TUTTI_API tuttiResult_t tuttiGather(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                    int root, tuttiComm_t comm, tuttiStream_t stream);

/* recv[i] on rank r = send[r * count + i] of `root`. sendbuff has nranks * count elements on the root; elsewhere it is
 * not read and may be NULL. In place where recvbuff == sendbuff + root * count on the root.
 * Errors: also InvalidArgument (root outside 0..nranks-1). */
TUTTI_API tuttiResult_t tuttiScatter(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                     int root, tuttiComm_t comm, tuttiStream_t stream);

/* recv[r * count + i] on rank s = send[s * count + i] of rank r: both buffers have nranks * count elements. In place
 * where sendbuff == recvbuff. */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                      tuttiComm_t comm, tuttiStream_t stream);

/* V-forms: the same with blocks of sizes of their own, 0 allowed. Block r of a buffer is counts[r] elements from element
 * displs[r] on; with displs NULL each block follows the one before. What lies between blocks is neither read nor
 * written. Arrays have nranks entries and are read during the call only, also where it runs on a stream, in a group or
 * is prepared. Blocks that are received, or are sent in place, must not overlap each other; those that are only sent may.
 * Ranks that disagree about a size get the error Mismatch.
 * Errors of all: as tuttiAllReduce; InvalidArgument (an array NULL where it is read, a block that ends beyond 2^63 bytes,
 * overlap, a rank's block for itself with two sizes). */

/* Block r of recvbuff, on every rank = send of rank r, who gives sendcount == recvcounts[r] elements. All ranks give the
 * same recvcounts; rdispls are the rank's own. In place where sendbuff is the rank's block of recvbuff. */
TUTTI_API tuttiResult_t tuttiAllGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                                        const size_t* recvcounts, const size_t* rdispls, tuttiDataType_t datatype,
                                        tuttiComm_t comm, tuttiStream_t stream);

/* recv on rank r = op over all ranks of block r of their sendbuff, recvcount == sendcounts[r] elements. All ranks give the
 * same sendcounts; sdispls are the rank's own. In place where recvbuff is the rank's block of sendbuff. */
TUTTI_API tuttiResult_t tuttiReduceScatterV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                            void* recvbuff, size_t recvcount, tuttiDataType_t datatype,
                                            tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);

/* Block r of recvbuff on `root` = send of rank r, who gives sendcount elements; recvcounts[r] on the root must be equal.
 * recvbuff, recvcounts and rdispls are used on the root only and may be NULL elsewhere. In place on the root where
 * sendbuff is its block of recvbuff. Errors: also InvalidArgument (root outside 0..nranks-1). */
TUTTI_API tuttiResult_t tuttiGatherV(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                                     const size_t* rdispls, tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                     tuttiStream_t stream);

/* recv on rank r, recvcount elements = block r of sendbuff of `root`, where sendcounts[r] must be equal. sendbuff,
 * sendcounts and sdispls are used on the root only and may be NULL elsewhere. In place on the root where recvbuff is its
 * block of sendbuff. Errors: also InvalidArgument (root outside 0..nranks-1). */
TUTTI_API tuttiResult_t tuttiScatterV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                      void* recvbuff, size_t recvcount, tuttiDataType_t datatype, int root,
                                      tuttiComm_t comm, tuttiStream_t stream);

/* Block r of recvbuff on rank s = block s of sendbuff of rank r: recvcounts[r] there must equal sendcounts[s] here. In
 * place where sendbuff == recvbuff and counts and displacements of both are equal. */
TUTTI_API tuttiResult_t tuttiAlltoAllV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                       void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                                       tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream);

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

/* tuttiSend to rank `to` and tuttiRecv from rank `from` together, as in a group: an exchange, or a shift round the
 * ranks. Either may be the rank itself where both are. The buffers must be disjoint. Errors: as tuttiSend and
 * tuttiRecv; InvalidUsage (only one of the two is the rank itself). */
TUTTI_API tuttiResult_t tuttiSendRecv(const void* sendbuff, size_t sendcount, int to, void* recvbuff, size_t recvcount,
                                      int from, tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream);

/* --- Calls with options ------------------------------------------------------------------------------------------ */

/* What one call asks for beside what it does; read before the call returns. Start from TUTTI_OPTIONS_INITIALIZER; a field
 * left at its initial value means "as the communicator". All ranks must give the same algorithm, determinism and inputs,
 * else the call ends with tuttiMismatch, which shows both; deadlines may differ. */
typedef struct {
  size_t size;           /* sizeof(tuttiOptions_t) as the caller was compiled */
  uint32_t version;      /* TUTTI_VERSION as the caller was compiled */
  int32_t deadline_ms;   /* longest wait of this call, in ms; > 0. In a group it counts from the group's end. Then the
                            call ends with tuttiTimeout, as at the communicator's deadline: for all ranks and for good */
  const char* algorithm; /* name of an algorithm of this collective (of the catalog, or of a file named by
                            TUTTI_SCHEDULES); NULL: chosen */
  int32_t determinism;   /* a tuttiDeterminism_t; -1: the communicator's */
  size_t inputs;         /* reductions with determinism invariant only: vectors that each rank gives, 1 to 4095. sendbuff
                            has so many, one after the other, each as large as the call says (of v-forms: up to the end of
                            its last block). recvbuff has one; in place it lies in the first. The result is that of all
                            ranks' vectors: avg divides by their number */
} tuttiOptions_t;

#define TUTTI_OPTIONS_INITIALIZER { sizeof(tuttiOptions_t), TUTTI_VERSION, -1, NULL, -1, 1 }

/* Each is the call without "With" on the terms of `options`, alone, in groups, on streams and prepared. options may be
 * NULL. Errors: as the call's; InvalidArgument (options->size, deadline_ms, determinism or inputs; an algorithm that the
 * collective does not have, or that does not add as the determinism asks; any algorithm for point to point). */
TUTTI_API tuttiResult_t tuttiAllReduceWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                           tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream,
                                           const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiBroadcastWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                           int root, tuttiComm_t comm, tuttiStream_t stream,
                                           const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiReduceWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                        tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream,
                                        const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiAllGatherWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                           tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiReduceScatterWith(const void* sendbuff, void* recvbuff, size_t count,
                                               tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                                               tuttiStream_t stream, const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiGatherWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                        int root, tuttiComm_t comm, tuttiStream_t stream,
                                        const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiScatterWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                         int root, tuttiComm_t comm, tuttiStream_t stream,
                                         const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiAlltoAllWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                          tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiScanWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                      tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream,
                                      const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiExScanWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                        tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream,
                                        const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiAllGatherVWith(const void* sendbuff, size_t sendcount, void* recvbuff,
                                            const size_t* recvcounts, const size_t* rdispls, tuttiDataType_t datatype,
                                            tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiReduceScatterVWith(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                                void* recvbuff, size_t recvcount, tuttiDataType_t datatype,
                                                tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream,
                                                const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiGatherVWith(const void* sendbuff, size_t sendcount, void* recvbuff,
                                         const size_t* recvcounts, const size_t* rdispls, tuttiDataType_t datatype,
                                         int root, tuttiComm_t comm, tuttiStream_t stream,
                                         const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiScatterVWith(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                          void* recvbuff, size_t recvcount, tuttiDataType_t datatype, int root,
                                          tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiAlltoAllVWith(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                           void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                                           tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream,
                                           const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiBarrierWith(tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiSendWith(const void* sendbuff, size_t count, tuttiDataType_t datatype, int peer,
                                      tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiRecvWith(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                                      tuttiStream_t stream, const tuttiOptions_t* options);
TUTTI_API tuttiResult_t tuttiSendRecvWith(const void* sendbuff, size_t sendcount, int to, void* recvbuff,
                                          size_t recvcount, int from, tuttiDataType_t datatype, tuttiComm_t comm,
                                          tuttiStream_t stream, const tuttiOptions_t* options);

/* --- Groups ---------------------------------------------------------------------------------------------------- */

/* Calls of this thread between Start and End are collected and run together by the outermost End: sends and receives
 * in any order complete, several communicators of one thread progress together. Collectives of one communicator give what
 * they would one after the other, also where one reads what another writes, and it does not matter whether other ranks call
 * them in a group, too; but small ones go at once, so that one way there and back is waited for, not one for each. Calls
 * inside a group check their arguments at once. Groups nest. Errors of End: InvalidUsage (no Start), else the first error of
 * the group. If a call inside the group was refused, End runs nothing and returns that error. Calls of a group on one stream, or
 * on the calling thread, end as soon as one of their communicators fails. Each other one on which they are not all over then
 * fails, too, on all of its ranks (Aborted, with that first error in the sentence): after a group a communicator is through with
 * its calls, or has failed. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* --- Prepared calls -------------------------------------------------------------------------------------------- */

/* Calls that are checked and planned once and run many times, as MPI's persistent operations are. */
typedef struct tuttiPrepared* tuttiPrepared_t;

/* Collectives, sends and receives of this thread between Start and End (each with stream NULL, groups allowed) are
 * checked but not run: End keeps them, with their buffers, as *prepared. They run together, as a group does.
 * If a call in between was refused, End returns that error and *prepared is NULL. *prepared is owned by the caller.
 * Errors: InvalidUsage (inside a group or another tuttiPrepareStart; End without Start), InvalidArgument (NULL). */
TUTTI_API tuttiResult_t tuttiPrepareStart(void);
TUTTI_API tuttiResult_t tuttiPrepareEnd(tuttiPrepared_t* prepared);

/* Runs the calls once more, on the contents that their buffers have now. stream NULL: on the calling thread, returns when
 * all are done. Else they are enqueued; the next start must wait until the stream has passed this one. The ranks of each
 * communicator start in one order with their other calls. From the second start on nothing is checked or planned.
 * Errors: those of the calls; InvalidUsage (still running; a communicator of the calls was destroyed or finalized). */
TUTTI_API tuttiResult_t tuttiPreparedStart(tuttiPrepared_t prepared, tuttiStream_t stream);

/* Frees what is kept. A run that is under way on a stream still ends well. prepared may be NULL. */
TUTTI_API tuttiResult_t tuttiPreparedDestroy(tuttiPrepared_t prepared);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_H_ */
