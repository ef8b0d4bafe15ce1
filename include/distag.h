/* distag: distributed autograd as a C library.                                            SPDX-License-Identifier: MIT
 *
 * A host program makes workers. Workers call each other's functions; the tensor math on the way is recorded in a
 * context; distag_backward then runs the backward pass in every process that took part, and each keeps its gradients
 * in that context. Training within one process uses the same calls and needs no worker.
 *
 * CONTENTS                            what it is for                        when to use it
 *
 *   1. Status and errors              what failed, where, what to do        after each chain of calls
 *   2. Handles                        retain and release                    for all that a call makes
 *   3. Tensors                        dense n-d arrays                      for data, parameters and results
 *   4. Ops                            differentiable math                   to compute
 *   5. Custom ops and hooks           math and callbacks of the host        where the built-in ops end
 *   6. Values                         what calls carry                      for arguments and answers
 *   7. Workers                        participants of a group               between processes; never for local training
 *   8. Functions that a worker offers callbacks that peers may call         to serve
 *   9. Calls and futures              calls to other workers                to use what peers offer
 *  10. Contexts and the backward pass gradients through all processes       to train
 *  11. Remote references              values that stay at their owner       for models, tables, environments
 *  12. Optimizers                     updates where the parameters are      after a backward pass
 *  13. Looking inside                 statistics and reports                when it is slow, or hangs
 *  14. Meshes                         workers in a grid with named axes     when all workers run one program
 *  15. Specs                          how a tensor lies on a mesh           to choose what is cut, and what repeated
 *  16. Collectives on plain tensors   sums and exchanges within a mesh      for values that are not sharded
 *  17. Sharded tensors                tensors cut over a mesh               for data or models larger than one worker
 *  18. Checkpoints                    tensors of a mesh in files            to go on later, on any other mesh
 *  19. Loaders                        batches made ahead, sharded           to feed a mesh
 *  20. Plans                          specs of many tensors, by rules       to shard a model by names
 *  21. The function table             all functions in one struct           with dlopen
 *  22. Limits                         the bounds, in numbers                to choose sizes
 *
 * CONVENTIONS
 *
 *  1. Handles are opaque and counted. A handle written to an out_ parameter is one reference for the caller to release.
 *     retain adds one; release drops one, takes NULL, never blocks, never fails, on any thread, in any order.
 *  2. Lent instead is every pointer that a function returns or that distag_<noun>_get_<item> writes to out_
 *     (distag_get_gradients, which names no noun, gives). It lives as long as the caller holds the first argument,
 *     longer if it is retained. copy_ fills the caller's buffer.
 *     "take": the library owns the argument from then on, on success only. Several handles may stand for one tensor,
 *     rref, worker or future, and a lent handle is one of its own: compare ids and names, not pointers.
 *  3. Fallible functions return distag_status, 0 is ok. On failure, and only then, they fill the caller's distag_error
 *     (always the last parameter, always nullable). Beside the failures under "Fails", any can answer
 *     INVALID_ARGUMENT, OUT_OF_MEMORY or INTERNAL. Functions without a status answer 0, -1 or NULL to a NULL handle.
 *  4. After a failure every out parameter is NULL or 0 and nothing needs cleanup. Failures pass through: a call that
 *     gets NULL for a handle it needs, or a worker that is not started, while its err already holds a failure, returns
 *     that failure and leaves err as it is. So a chain of calls on one err can be checked once, at its end; calls that
 *     do not depend on the failed one still run. Set err.code to 0 before an unrelated chain.
 *  5. Options structs start with struct_size: use the _INIT macro, or zeroed memory and set it. Zero means default, and
 *     NULL options are all defaults. Structs grow at their end only. A field or value that the library does not know
 *     or cannot honour is refused (UNSUPPORTED), never ignored; of a struct whose struct_size no version had, nothing
 *     is used. A struct that is filled for the caller needs its struct_size too.
 *  6. Pointers must not be NULL unless marked nullable; an empty array is (NULL, 0). Text is UTF-8 and ends in NUL.
 *     Text, arrays and structs may be reused once the call returns. size is in bytes, count in items. Times are
 *     nanoseconds; DISTAG_FOREVER is -1.
 *  7. Each handle type is immutable (anyone, any time), thread-safe (any thread; calls order themselves), or lent (to
 *     one callback, on its thread, until it returns).
 *  8. A function blocks only if its comment says "Blocks". It then takes a timeout or says its bound, and has an _async
 *     twin that gives a distag_future where a host may not want to wait. A timeout parameter of 0 does not wait; in
 *     options 0 is default.
 *  9. Callbacks run on the worker's pool. With DISTAG_EXECUTOR_HOST they run only in distag_worker_poll, and in the
 *     other blocking calls of the thread that polls, on whichever worker, except distag_worker_wait; no host code runs
 *     on distag's threads, destroy functions included, except allocators and thread hooks. Without a worker they run
 *     inside the call that needs them. Callbacks run without distag locks and may call anything but
 *     distag_worker_shutdown of their own worker. Handles they get are lent; a handle they write to an out_ parameter
 *     passes to distag; their err is never NULL and starts clean. A destroy function runs exactly once, on every path,
 *     also when the call it was given to fails. A callback that ends its thread (pthread_exit) counts as one that never
 *     returns: the thread is parked for good, another one takes its place, and a shutdown answers DEADLINE. A thread
 *     hook may end its thread: the worker goes on as if it had returned. A thread that is cancelled (pthread_cancel)
 *     inside a call ends once it returns.
 * 10. No exception, signal handler, abort, exit, output, environment write, locale or FP-mode change comes out of this
 *     library. The FP mode of a thread (rounding, traps, subnormal numbers) holds in its callbacks, and changes nothing
 *     that distag computes. It starts no thread before the first worker and has none after the last shutdown (OpenBLAS
 *     has its own from load to unload, tried for by threads that end while distag is loaded; libpmix, where a launcher
 *     speaks PMIx, from its first use). Its threads take the default stack: distag needs 128 KiB, callbacks theirs on
 *     top. In a forked child a call on a parent's handle is INVALID_STATE, release only frees memory, new workers work.
 * 11. A wrong or released handle is answered with INVALID_ARGUMENT where that can be told; releasing a lent handle is a
 *     no-op. With DISTAG_VALIDATE=1 in the environment handles are kept aside after their release, and misuse is
 *     always told: of retain and release, which answer nothing, by distag_get_misuse_count.
 * 12. Within an ABI major nothing is removed, renumbered or moved. Treat enumerators you do not know as "other".
 *
 * Declarations are there since 0.1 unless they say otherwise. Fields and enumerators marked "later" are here for their
 * place in a struct or an enum, and answer UNSUPPORTED to anything but 0. */
#ifndef DISTAG_H
#define DISTAG_H

#include <stddef.h>
#include <stdint.h>

#define DISTAG_VERSION_MAJOR 0
#define DISTAG_VERSION_MINOR 3
#define DISTAG_VERSION_PATCH 0
#define DISTAG_ABI_MAJOR 0 /* part of the soname, and the argument of distag_get_api */

#if defined(DISTAG_STATIC)
#define DISTAG_API
#elif defined(_WIN32) && defined(DISTAG_BUILD)
#define DISTAG_API __declspec(dllexport)
#elif defined(_WIN32)
#define DISTAG_API __declspec(dllimport)
#else
#define DISTAG_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1. Status and errors ======================================================================= since 0.1 ==== */

/* The answer of a call. The tens say how to go on: 1x mend the call, 2x use another way, 3x wait and retry, 4x
 * reconnect, 5x give up, 6x read the message. 1000 and above belong to callbacks and travel unchanged. */
typedef int32_t distag_status;
enum distag_status_code {
  DISTAG_OK = 0,
  DISTAG_E_INVALID_ARGUMENT = 10, /* a NULL, a wrong handle, shapes or dtypes that do not fit */
  DISTAG_E_INVALID_STATE = 11,    /* right call, wrong time: not started, shut down, ended, answered before */
  DISTAG_E_NOT_FOUND = 12,        /* no such worker, function, op, attribute or setting */
  DISTAG_E_DENIED = 13,           /* keys or permissions do not allow it */
  DISTAG_E_UNSUPPORTED = 20,      /* known, but not to this build, dtype or device */
  DISTAG_E_OVERLOADED = 30,       /* a byte budget of a peer or worker is used up, or a limit on open things */
  DISTAG_E_OUT_OF_MEMORY = 31,    /* memory, threads or descriptors are used up */
  DISTAG_E_DISCONNECTED = 40,     /* a worker that is needed is lost */
  DISTAG_E_PEER_RESTARTED = 41,   /* a new incarnation has the name; all that belonged to the old one is gone */
  DISTAG_E_DEADLINE = 50,         /* time is up */
  DISTAG_E_CANCELLED = 51,        /* cancelled, or its context or worker ended */
  DISTAG_E_REMOTE = 60,           /* a function dropped its reply, or failed with a status unknown here */
  DISTAG_E_PROTOCOL = 61,         /* a peer broke the protocol, or speaks another version */
  DISTAG_E_INTERNAL = 62,         /* a defect in distag */
  DISTAG_E_GRAPH_FREED = 63,      /* a second pass without retain_graph */
  DISTAG_E_UNREACHED_SEND = 64,   /* FAST mode: results of the named calls were never used */
  DISTAG_E_DIVERGED = 65,         /* the members of a mesh do not run the same program; the message shows both calls */
  DISTAG_E_USER = 1000            /* first status of callbacks */
};

enum distag_error_flag { DISTAG_ERROR_MAY_HAVE_RUN = 1 }; /* the function ran or may have run; else it did not */

/* Filled by a failed call. The message names the failure, its place, the remedy and every worker it passed. */
typedef struct distag_error {
  uint32_t struct_size; /* sizeof(distag_error); 0 counts as the 512 bytes of version 0.1, so zeroed memory will do */
  distag_status code;
  int32_t origin_rank; /* where it arose; of a mesh: who did not come, or first of two that differ; -1: this process */
  uint32_t flags;      /* DISTAG_ERROR_... */
  char message[496];   /* UTF-8, ends in NUL, cut between characters if too long */
} distag_error;
#define DISTAG_ERROR_INIT {sizeof(distag_error), DISTAG_OK, -1, 0, {0}}

/* Fills an error from inside a callback and returns its code: return distag_error_set(err, 1000, "no such user"). */
DISTAG_API distag_status distag_error_set(distag_error *err, distag_status code, const char *message);

/* "INVALID_ARGUMENT" for 10, "USER" from 1000 on, "UNKNOWN" for a status this library does not know. Static text. */
DISTAG_API const char *distag_status_get_name(distag_status status);

#define DISTAG_FOREVER -1LL
#define DISTAG_MILLISECOND 1000000LL
#define DISTAG_SECOND 1000000000LL

/* ==== 2. Handles ================================================================================= since 0.1 ==== */

typedef struct distag_tensor distag_tensor;         /* dense n-d array with its history. thread-safe */
typedef struct distag_value distag_value;           /* content of calls: scalar, text, tensor, list ... immutable */
typedef struct distag_worker distag_worker;         /* one participant: name, rank, functions. thread-safe */
typedef struct distag_invocation distag_invocation; /* one incoming call, of a function or taken. lent */
typedef struct distag_reply distag_reply;           /* the answer that a function still owes. thread-safe */
typedef struct distag_future distag_future;         /* completes exactly once: value or failure. thread-safe */
typedef struct distag_context distag_context;       /* one forward and its backward passes. thread-safe */
typedef struct distag_gradients distag_gradients;   /* snapshot of a context's gradients on this worker. immutable */
typedef struct distag_rref distag_rref;             /* reference to a value at its owner. since 0.2. thread-safe */
typedef struct distag_optimizer distag_optimizer;   /* update rule and its state. since 0.2. thread-safe */
typedef struct distag_mesh distag_mesh;             /* workers in a grid with named axes. since 0.3. thread-safe */
typedef struct distag_loader distag_loader;         /* batches that come sharded. since 0.3. thread-safe */
typedef struct distag_plan distag_plan;             /* specs of named tensors on a mesh. since 0.3. immutable */

/* A handle stays safe after its worker is shut down or released; its calls then answer INVALID_STATE. */
DISTAG_API void distag_tensor_retain(distag_tensor *tensor);
DISTAG_API void distag_tensor_release(distag_tensor *tensor /* nullable */);
DISTAG_API void distag_value_retain(distag_value *value);
DISTAG_API void distag_value_release(distag_value *value /* nullable */);
DISTAG_API void distag_gradients_retain(distag_gradients *gradients);
DISTAG_API void distag_gradients_release(distag_gradients *gradients /* nullable */);
DISTAG_API void distag_rref_retain(distag_rref *rref); /* since 0.2 */
DISTAG_API void distag_rref_release(distag_rref *rref /* nullable */);
DISTAG_API void distag_optimizer_retain(distag_optimizer *optimizer);
DISTAG_API void distag_optimizer_release(distag_optimizer *optimizer /* nullable */);

/* Releasing a future does not cancel its operation. */
DISTAG_API void distag_future_retain(distag_future *future);
DISTAG_API void distag_future_release(distag_future *future /* nullable */);

/* The last release of a reply that is not finished fails its call with REMOTE. */
DISTAG_API void distag_reply_retain(distag_reply *reply);
DISTAG_API void distag_reply_release(distag_reply *reply /* nullable */);

/* The creator's last release ends the context, here and everywhere it reached: see distag_context_create. */
DISTAG_API void distag_context_retain(distag_context *context);
DISTAG_API void distag_context_release(distag_context *context /* nullable */);

/* The last release of a worker that is not shut down shuts it down with timeout 0 on a thread of distag, where its
 * last destroy functions then run: shut down first with the host executor, and before the library is unloaded. */
DISTAG_API void distag_worker_retain(distag_worker *worker);
DISTAG_API void distag_worker_release(distag_worker *worker /* nullable */);

/* The last release of a mesh, its lines included, takes this worker out of it: what this worker still owes for calls it
 * has made goes out first, and calls that the others make after these fail with DISCONNECTED naming it (since 0.3). */
DISTAG_API void distag_mesh_retain(distag_mesh *mesh);
DISTAG_API void distag_mesh_release(distag_mesh *mesh /* nullable */);

/* The last release of a loader ends it: calls of its source that run end first, then its destroy runs. It keeps its
 * mesh until then. Members that wait for a batch which it has not announced get DISCONNECTED naming it (since 0.3). */
DISTAG_API void distag_loader_retain(distag_loader *loader);
DISTAG_API void distag_loader_release(distag_loader *loader /* nullable */);
DISTAG_API void distag_plan_retain(distag_plan *plan);
DISTAG_API void distag_plan_release(distag_plan *plan /* nullable */);

/* Ends the life of something of the host: user data, memory, an object. May run on any thread, but see 9. */
typedef void (*distag_deleter)(void *user_data);

/* ==== 3. Tensors ==================================================================================== since 0.1 ====
 *
 * A tensor is a dtype, a shape, strides in elements, and storage that its views share. Its values change only through
 * distag_tensor_write, _assign and _add_scaled. Messages on their way keep the values they were sent with,
 * and a tensor that arrives in a call is a new one, also within one process: no write on one side shows on the other. A
 * backward pass uses the values that were recorded.
 * ================================================================================================================== */

typedef int32_t distag_dtype;
enum distag_dtype_code {
  DISTAG_FLOAT32 = 1,
  DISTAG_FLOAT64 = 2,
  DISTAG_INT64 = 3,
  DISTAG_BOOL = 4,    /* one byte, 0 or 1 */
  /* later: */ DISTAG_FLOAT16 = 5, DISTAG_BFLOAT16 = 6, DISTAG_INT8 = 7, DISTAG_INT32 = 8, DISTAG_UINT8 = 9
};

/* Bytes per element; 0 for an unknown dtype. */
DISTAG_API size_t distag_dtype_get_size(distag_dtype dtype);

/* Copies row-major host memory into a new tensor. ndim 0 makes a scalar.
 * Fails: INVALID_ARGUMENT when `size` is not the size that dtype and shape need, or a dimension is negative. */
DISTAG_API distag_status distag_tensor_create(const void *data, size_t size, distag_dtype dtype, const int64_t *shape,
                                              size_t ndim, distag_tensor **out_tensor, distag_error *err);

/* Makes a tensor over host memory without copying it; distag only reads it. strides NULL means row-major.
 * Ownership: the memory stays as it is until destroy(user_data) runs, when no tensor, graph or message needs it.
 * Fails: INVALID_ARGUMENT when shape and strides reach outside of `size` bytes. */
DISTAG_API distag_status distag_tensor_create_borrowed(const void *data, size_t size, distag_dtype dtype,
                                                       const int64_t *shape, const int64_t *strides /* nullable */,
                                                       size_t ndim, void *user_data /* nullable */,
                                                       distag_deleter destroy /* nullable */,
                                                       distag_tensor **out_tensor, distag_error *err);

/* Properties of a tensor. */
DISTAG_API distag_dtype distag_tensor_get_dtype(distag_tensor *tensor);
DISTAG_API size_t distag_tensor_get_ndim(distag_tensor *tensor);
DISTAG_API const int64_t *distag_tensor_get_shape(distag_tensor *tensor);   /* ndim items */
DISTAG_API const int64_t *distag_tensor_get_strides(distag_tensor *tensor); /* ndim items, in elements */
DISTAG_API size_t distag_tensor_get_count(distag_tensor *tensor);           /* elements */
DISTAG_API size_t distag_tensor_get_size(distag_tensor *tensor);            /* bytes, as copy_data needs */
DISTAG_API uint64_t distag_tensor_get_id(distag_tensor *tensor);            /* same id, same tensor, in this process */

enum distag_tensor_flag {
  DISTAG_TENSOR_BORROWED = 1,   /* over memory of the host, which no call writes */
  DISTAG_TENSOR_CONTIGUOUS = 2, /* row-major without gaps */
  DISTAG_TENSOR_HAS_HISTORY = 4, /* computed from a tensor that requires grad */
  DISTAG_TENSOR_DEFERRED = 8,    /* its elements are not made yet, see distag_tensor_create_deferred (since 0.3) */
  DISTAG_TENSOR_SHAPE_ONLY = 16  /* it never has elements, see DISTAG_INIT_SHAPE (since 0.3) */
};

/* The properties of a tensor at once (since 0.3). Pointers live as long as the tensor. */
typedef struct distag_tensor_info {
  uint32_t struct_size;
  distag_dtype dtype;
  int32_t requires_grad;
  uint32_t flags; /* DISTAG_TENSOR_... */
  uint64_t id;
  size_t ndim, count, size; /* count elements, size bytes, as copy_data needs */
  const int64_t *shape;     /* ndim items, as strides has */
  const int64_t *strides;   /* in elements */
} distag_tensor_info;
#define DISTAG_TENSOR_INFO_INIT {sizeof(distag_tensor_info), 0, 0, 0, 0, 0, 0, 0, NULL, NULL}
DISTAG_API distag_status distag_tensor_get_info(distag_tensor *tensor, distag_tensor_info *out_info,
                                                distag_error *err);

/* The first element, to be read with the strides and never written: it may lie in memory of another process, where a
 * write ends this one. NULL without elements. Lent only until the next write to the tensor or a view of it, in any
 * thread: for hosts that order reads and writes by themselves. Others use copy_data. */
DISTAG_API const void *distag_tensor_get_data(distag_tensor *tensor);

/* Makes a tensor with the values of this moment, without history: no write to the other one changes either (since 0.3).
 * Copies nothing until one of them is written, where distag_clone copies at once. The data of a snapshot that is
 * not written, as distag_tensor_get_data gives it, stays where it is for as long as the snapshot is held. */
DISTAG_API distag_status distag_tensor_create_snapshot(distag_tensor *tensor, distag_tensor **out_snapshot,
                                                       distag_error *err);

/* Copies all elements, row-major.
 * Fails: INVALID_ARGUMENT when `capacity` bytes are too few. */
DISTAG_API distag_status distag_tensor_copy_data(distag_tensor *tensor, void *buffer, size_t capacity,
                                                 distag_error *err);

/* The only element, as float64.
 * Fails: INVALID_ARGUMENT when there is not exactly one. */
DISTAG_API distag_status distag_tensor_get_item(distag_tensor *tensor, double *out_item, distag_error *err);

/* Asks for gradients with respect to this tensor (1) or not (0).
 * Fails: INVALID_STATE when it has a history, INVALID_ARGUMENT when its dtype is not a floating one. */
DISTAG_API distag_status distag_tensor_set_requires_grad(distag_tensor *tensor, int32_t requires_grad,
                                                         distag_error *err);
DISTAG_API int32_t distag_tensor_get_requires_grad(distag_tensor *tensor); /* 1 also for results of such tensors */

/* Sets the values in place, unrecorded, to `size` bytes of row-major host memory. Id, views and requires_grad stay.
 * Threads: every reader of the tensor or of a view of it (a copy, an op, a call, a fetch) sees the values before the
 * write or after it, never a mixture. Writes come one after the other, also those to views that overlap.
 * Fails: INVALID_STATE when it has a history or borrows its memory, OUT_OF_MEMORY. */
DISTAG_API distag_status distag_tensor_write(distag_tensor *tensor, const void *data, size_t size, distag_error *err);

/* Sets the values in place, unrecorded, to those of another tensor, cast and broadcast.
 * Threads, Fails: as distag_tensor_write. */
DISTAG_API distag_status distag_tensor_assign(distag_tensor *tensor, distag_tensor *source, distag_error *err);

/* Adds scale * source to the values in place, unrecorded, cast and broadcast.
 * Threads, Fails: as distag_tensor_write. */
DISTAG_API distag_status distag_tensor_add_scaled(distag_tensor *tensor, distag_tensor *source, double scale,
                                                  distag_error *err);

enum distag_dlpack_flag {
  DISTAG_DLPACK_COPY = 1, /* memory of its own, which the consumer may write */
  DISTAG_DLPACK_SHARE = 2 /* without a copy: promises that what is exported is not written */
};

/* DLPack (https://dmlc.github.io/dlpack, version 1): tensors shared with other libraries of the process (since 0.3). An
 * export has the values of this moment and no history. Without flags one of version 1 is a snapshot marked read-only;
 * the struct from before (legacy) has no such mark, so it is a copy unless DISTAG_DLPACK_SHARE is given, and then still
 * if the elements lie in memory of another process.
 * Ownership: an export is an independent owner and counts as a handle: the consumer ends it by its deleter, on any
 * thread, before the library is unloaded.
 * Fails: UNSUPPORTED (flags), INVALID_ARGUMENT (both flags). */
struct DLManagedTensor;
struct DLManagedTensorVersioned;
DISTAG_API distag_status distag_tensor_export_dlpack(distag_tensor *tensor, uint32_t flags,
                                                     struct DLManagedTensorVersioned **out_managed, distag_error *err);
DISTAG_API distag_status distag_tensor_export_dlpack_legacy(distag_tensor *tensor, uint32_t flags,
                                                            struct DLManagedTensor **out_managed, distag_error *err);

/* Makes a tensor over memory of another library without copying it; distag only reads it (since 0.3).
 * Ownership: `managed` is taken on success; its deleter runs as destroy of distag_tensor_create_borrowed does.
 * Fails: UNSUPPORTED (a device that is not the CPU, an unknown dtype, another major version); INVALID_ARGUMENT (sizes,
 * strides or an offset that no memory has, data that is NULL or not aligned to its dtype, a bool not 0 or 1). */
DISTAG_API distag_status distag_tensor_import_dlpack(struct DLManagedTensorVersioned *managed /* take */,
                                                     distag_tensor **out_tensor, distag_error *err);
DISTAG_API distag_status distag_tensor_import_dlpack_legacy(struct DLManagedTensor *managed /* take */,
                                                            distag_tensor **out_tensor, distag_error *err);

/* ==== 4. Ops ======================================================================================== since 0.1 ====
 *
 * Ops compute a new tensor, or a view where that is exact. If an input requires grad the op is recorded and its result
 * requires grad too. No hidden switch turns that off: to compute without recording, give inputs that are detached, or
 * use distag_apply with DISTAG_APPLY_NO_GRAD. Negative dims count from the end; dims (NULL, 0) are all dims. Ops on
 * integers and bools have no gradient.
 * Fails: INVALID_ARGUMENT naming op, shapes and dtypes; UNSUPPORTED for a dtype.
 * ================================================================================================================== */

/* ---- Numbers. Elementwise ops broadcast as NumPy and PyTorch do, and promote dtypes as
 * PyTorch does where they differ: int64 with float32 gives float32 (NumPy: float64), also where integers are divided or
 * given to exp and its kin; a 0-d tensor counts only if its category (bool, integer, floating) is the higher one. A
 * power of integers or bools is int64 and wraps around; a negative exponent gives 0, as in PyTorch, except for bases 1
 * and -1. Sums of float32 are made in float64, then rounded; those of matmul, linear, conv2d are the BLAS's. ---- */

/* Filled with zeros. */
DISTAG_API distag_status distag_zeros(distag_dtype dtype, const int64_t *shape, size_t ndim, distag_tensor **out_y,
                                      distag_error *err);

/* Filled with ones. */
DISTAG_API distag_status distag_ones(distag_dtype dtype, const int64_t *shape, size_t ndim, distag_tensor **out_y,
                                     distag_error *err);

/* Filled with `value`. */
DISTAG_API distag_status distag_full(double value, distag_dtype dtype, const int64_t *shape, size_t ndim,
                                     distag_tensor **out_y, distag_error *err);

/* 1-d: start + i * step in float64, then cast, for i = 0, 1, ... below (stop - start) / step in float64, which may
 * round up to one at stop. int64 takes a whole start and step. Fails: INVALID_ARGUMENT (not finite, a step of 0). */
DISTAG_API distag_status distag_arange(double start, double stop, double step, distag_dtype dtype,
                                       distag_tensor **out_y, distag_error *err);

/* Uniform in [0, 1). Philox 4x32-10 (Salmon et al. 2011): a seed gives the same numbers everywhere. */
DISTAG_API distag_status distag_rand(uint64_t seed, distag_dtype dtype, const int64_t *shape, size_t ndim,
                                     distag_tensor **out_y, distag_error *err);

/* Standard normal, from the same generator. */
DISTAG_API distag_status distag_randn(uint64_t seed, distag_dtype dtype, const int64_t *shape, size_t ndim,
                                      distag_tensor **out_y, distag_error *err);

/* y = a + b */
DISTAG_API distag_status distag_add(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);

/* y = a - b */
DISTAG_API distag_status distag_sub(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);

/* y = a * b */
DISTAG_API distag_status distag_mul(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);

/* y = a / b */
DISTAG_API distag_status distag_div(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);

/* The larger of both; equal ones share the gradient. */
DISTAG_API distag_status distag_maximum(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);

/* y = (a == b), as bool */
DISTAG_API distag_status distag_eq(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);

/* y = x + s in the dtype of x; an integer x takes a whole s only, and bools none (cast them). */
DISTAG_API distag_status distag_add_scalar(distag_tensor *x, double s, distag_tensor **out_y, distag_error *err);

/* y = x * s in the dtype of x; an integer x takes a whole s only, and bools none (cast them). */
DISTAG_API distag_status distag_mul_scalar(distag_tensor *x, double s, distag_tensor **out_y, distag_error *err);

/* Elementwise functions. sigmoid(x) = 1 / (1 + exp(-x)); relu(x) = max(x, 0), with gradient 0 at 0. */
DISTAG_API distag_status distag_neg(distag_tensor *x, distag_tensor **out_y, distag_error *err);
DISTAG_API distag_status distag_exp(distag_tensor *x, distag_tensor **out_y, distag_error *err);
DISTAG_API distag_status distag_log(distag_tensor *x, distag_tensor **out_y, distag_error *err);
DISTAG_API distag_status distag_sqrt(distag_tensor *x, distag_tensor **out_y, distag_error *err);
DISTAG_API distag_status distag_tanh(distag_tensor *x, distag_tensor **out_y, distag_error *err);
DISTAG_API distag_status distag_sigmoid(distag_tensor *x, distag_tensor **out_y, distag_error *err);
DISTAG_API distag_status distag_relu(distag_tensor *x, distag_tensor **out_y, distag_error *err);

/* Sum over the given dims; keepdim 1 leaves them with size 1. */
DISTAG_API distag_status distag_sum(distag_tensor *x, const int64_t *dims, size_t dim_count, int32_t keepdim,
                                    distag_tensor **out_y, distag_error *err);

/* Mean over the given dims; keepdim 1 leaves them with size 1. */
DISTAG_API distag_status distag_mean(distag_tensor *x, const int64_t *dims, size_t dim_count, int32_t keepdim,
                                     distag_tensor **out_y, distag_error *err);

/* Largest element over the given dims; keepdim 1 leaves them with size 1. Equal largest elements share the gradient;
 * where one element is NaN the gradient of all is NaN, as in PyTorch. */
DISTAG_API distag_status distag_max(distag_tensor *x, const int64_t *dims, size_t dim_count, int32_t keepdim,
                                    distag_tensor **out_y, distag_error *err);

/* Index (int64) of the first largest element along a dim, which goes away. */
DISTAG_API distag_status distag_argmax(distag_tensor *x, int64_t dim, distag_tensor **out_y, distag_error *err);

/* [.., n, k] times [.., k, m] gives [.., n, m], batches broadcast. A 1-d side is a row or column, dropped again. */
DISTAG_API distag_status distag_matmul(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);

/* y = x weight^T + bias: [.., in], [out, in] and [out] give [.., out]. */
DISTAG_API distag_status distag_linear(distag_tensor *x, distag_tensor *weight, distag_tensor *bias /* nullable */,
                                       distag_tensor **out_y, distag_error *err);

/* Swaps two dims; a view where strides allow it. */
DISTAG_API distag_status distag_transpose(distag_tensor *x, int64_t dim0, int64_t dim1, distag_tensor **out_y,
                                          distag_error *err);

/* Gives a new shape, in which one size may be -1; a view where strides allow it. */
DISTAG_API distag_status distag_reshape(distag_tensor *x, const int64_t *shape, size_t ndim, distag_tensor **out_y,
                                        distag_error *err);

/* start, start + step, ... below stop of one dim; a view where strides allow it. */
DISTAG_API distag_status distag_slice(distag_tensor *x, int64_t dim, int64_t start, int64_t stop, int64_t step,
                                      distag_tensor **out_y, distag_error *err);

/* Several tensors one after the other along a dim. */
DISTAG_API distag_status distag_concat(distag_tensor *const *xs, size_t x_count, int64_t dim, distag_tensor **out_y,
                                       distag_error *err);

/* exp(x) / sum(exp(x)) along a dim, without overflow. */
DISTAG_API distag_status distag_softmax(distag_tensor *x, int64_t dim, distag_tensor **out_y, distag_error *err);

/* The logarithm of softmax along a dim, without overflow. */
DISTAG_API distag_status distag_log_softmax(distag_tensor *x, int64_t dim, distag_tensor **out_y, distag_error *err);

/* Scalar: the mean of -log_softmax(logits)[target] over a batch; logits [n, classes], targets [n] (int64). Other
 * reductions, weights and ignored classes: distag_apply. */
DISTAG_API distag_status distag_cross_entropy(distag_tensor *logits, distag_tensor *targets, distag_tensor **out_y,
                                              distag_error *err);

/* Scalar: the mean of (a - b)^2. Other reductions: distag_apply. */
DISTAG_API distag_status distag_mse_loss(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);

/* Convolves x [n, c, h, w] with weight [out, c, kh, kw] and adds bias [out]. stride and padding have two items: rows,
 * columns. Dilation and groups: distag_apply. */
DISTAG_API distag_status distag_conv2d(distag_tensor *x, distag_tensor *weight, distag_tensor *bias /* nullable */,
                                       const int64_t *stride, const int64_t *padding, distag_tensor **out_y,
                                       distag_error *err);

/* The largest element of each window of x [n, c, h, w]. kernel, stride and padding have two items: rows, columns. */
DISTAG_API distag_status distag_max_pool2d(distag_tensor *x, const int64_t *kernel, const int64_t *stride,
                                           const int64_t *padding, distag_tensor **out_y, distag_error *err);

/* The values in another dtype. */
DISTAG_API distag_status distag_cast(distag_tensor *x, distag_dtype dtype, distag_tensor **out_y, distag_error *err);

/* The values in storage of their own. */
DISTAG_API distag_status distag_clone(distag_tensor *x, distag_tensor **out_y, distag_error *err);

/* The values without history; the storage is shared and follows writes. */
DISTAG_API distag_status distag_detach(distag_tensor *x, distag_tensor **out_y, distag_error *err);

enum distag_apply_flag { DISTAG_APPLY_NO_GRAD = 1 }; /* record nothing */

/* Runs any op by name: those above with all their attributes, and many more. `attributes` is a map. An input may be
 * NULL where the op's signature says so. Gives exactly `output_count` tensors.
 * Fails: NOT_FOUND (op, attribute), INVALID_ARGUMENT (counts, kinds, shapes, dtypes). */
DISTAG_API distag_status distag_apply(const char *op, distag_tensor *const *inputs, size_t input_count,
                                      distag_value *attributes /* nullable */, uint32_t flags,
                                      distag_tensor **out_outputs, size_t output_count, distag_error *err);

/* Describes a built-in op, for generators of bindings. Pointers live as long as the library. */
typedef struct distag_op_info {
  uint32_t struct_size;
  uint32_t min_inputs;
  uint32_t max_inputs; /* UINT32_MAX: any number */
  uint32_t attribute_count;
  const char *name;
  const char *const *attribute_names;
  const char *signature; /* "linear(tensor x, tensor weight, tensor? bias) -> tensor", attributes as "int64 dim = -1" */
  const char *summary;   /* one sentence with shapes and formula; since 0.3 */
} distag_op_info;
#define DISTAG_OP_INFO_INIT {sizeof(distag_op_info), 0, 0, 0, NULL, NULL, NULL, NULL}

/* The number of built-in ops. */
DISTAG_API size_t distag_get_op_count(void);

/* Describes one built-in op; their order is fixed. Fails: NOT_FOUND past the end. */
DISTAG_API distag_status distag_get_op(size_t index, distag_op_info *out_op, distag_error *err);

/* ==== 5. Custom ops and hooks ==================================================================== since 0.1 ==== */

/* Computes the outputs of a custom op, new tensors. Inputs come without history, so nothing in here is recorded. */
typedef distag_status (*distag_custom_forward)(void *user_data, distag_tensor *const *inputs, size_t input_count,
                                               distag_tensor **out_outputs, size_t output_count, distag_error *err);

/* Computes the gradient of each input from that of each output. An output's is NULL when none reached it, as good as
 * zeros; an input's that is left NULL is zero. */
typedef distag_status (*distag_custom_backward)(void *user_data, distag_tensor *const *output_gradients,
                                                size_t output_count, distag_tensor **out_input_gradients,
                                                size_t input_count, distag_error *err);

/* A custom op, ready for one application; user_data keeps all that backward needs. An output kept there must be
 * detached, or the graph keeps itself alive. */
typedef struct distag_custom_op {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name; /* shows in errors and graphs */
  distag_custom_forward forward;
  distag_custom_backward backward; /* nullable: no gradient */
  void *user_data;                 /* nullable */
  distag_deleter destroy;          /* nullable; runs once no pass can need backward any more */
} distag_custom_op;
#define DISTAG_CUSTOM_OP_INIT {sizeof(distag_custom_op), 0, NULL, NULL, NULL, NULL, NULL}

/* Applies an op of the host's own: runs forward at once and records backward if an input requires grad.
 * Threads: forward runs on the calling thread; backward as in 9, or inside distag_backward without a worker.
 * Fails: as forward does. A pass fails as backward does, naming the op. */
DISTAG_API distag_status distag_apply_custom(const distag_custom_op *op, distag_tensor *const *inputs,
                                             size_t input_count, distag_tensor **out_outputs, size_t output_count,
                                             distag_error *err);

/* Sees the whole gradient of a tensor in a backward pass and may write another one in its place (since 0.2). */
typedef distag_status (*distag_tensor_hook)(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                                            distag_error *err);

/* Adds a hook to a tensor that requires grad (since 0.2). Hooks count for results computed from a tensor once it has
 * had one, and for passes that begin at it; so add the first before the tensor is used. They run in the order they were
 * added, each seeing the gradient that the one before it gave; without a gradient none runs.
 * Ownership: destroy runs once the hook is removed, or tensor and graph are gone, and no pass needs it.
 * Threads: a hook runs where backward of a custom op does. A pass fails as its hooks do, naming the tensor.
 * Fails: INVALID_STATE (no gradient). */
DISTAG_API distag_status distag_tensor_add_hook(distag_tensor *tensor, distag_tensor_hook hook,
                                                void *user_data /* nullable */, distag_deleter destroy /* nullable */,
                                                uint64_t *out_hook_id, distag_error *err);

/* Removes a hook by its id (since 0.2).
 * Fails: INVALID_STATE (no gradient), NOT_FOUND (the id). */
DISTAG_API distag_status distag_tensor_remove_hook(distag_tensor *tensor, uint64_t hook_id, distag_error *err);

/* ==== 6. Values ===================================================================================== since 0.1 ====
 *
 * Calls carry values. A tensor or rref handle is a value already, see distag_tensor_as_value. Lists and maps hold
 * references to their items, nest at most 16 deep, and like all values never change once made.
 * ================================================================================================================== */

typedef int32_t distag_value_kind;
enum distag_value_kind_code {
  DISTAG_VALUE_NULL = 1, DISTAG_VALUE_BOOL = 2, DISTAG_VALUE_INT64 = 3, DISTAG_VALUE_FLOAT64 = 4,
  DISTAG_VALUE_TEXT = 5, DISTAG_VALUE_BYTES = 6, DISTAG_VALUE_TENSOR = 7,
  DISTAG_VALUE_LIST = 8, DISTAG_VALUE_MAP = 9,
  DISTAG_VALUE_RREF = 10,  /* since 0.2 */
  DISTAG_VALUE_OBJECT = 11 /* since 0.2. Stays where it is: only rrefs to it travel */
};

/* Make a value. A list and a map hold a reference to each item; keys are unique, and text and bytes are copied.
 * Fails: INVALID_ARGUMENT (invalid UTF-8, a key twice, nested too deep, a list or map that holds an object). */
DISTAG_API distag_status distag_value_create_null(distag_value **out_value, distag_error *err);
DISTAG_API distag_status distag_value_create_bool(int32_t value, distag_value **out_value, distag_error *err);
DISTAG_API distag_status distag_value_create_int64(int64_t value, distag_value **out_value, distag_error *err);
DISTAG_API distag_status distag_value_create_float64(double value, distag_value **out_value, distag_error *err);
DISTAG_API distag_status distag_value_create_text(const char *text, distag_value **out_value, distag_error *err);
DISTAG_API distag_status distag_value_create_bytes(const void *data, size_t size, distag_value **out_value,
                                                   distag_error *err);
DISTAG_API distag_status distag_value_create_list(distag_value *const *items, size_t count, distag_value **out_value,
                                                  distag_error *err);
DISTAG_API distag_status distag_value_create_int64_list(const int64_t *items, size_t count, distag_value **out_value,
                                                        distag_error *err);
DISTAG_API distag_status distag_value_create_float64_list(const double *items, size_t count, distag_value **out_value,
                                                          distag_error *err); /* since 0.3 */
DISTAG_API distag_status distag_value_create_map(const char *const *keys, distag_value *const *items, size_t count,
                                                 distag_value **out_value, distag_error *err);

/* A host object (a model, an environment) that functions reach through an rref (since 0.2). `type`, UTF-8, is compared
 * by distag_value_get_object and _invocation_get_object, so that no peer can hand over one kind of object for another.
 * Threads: destroy(object) runs once nothing refers to it any more, where callbacks of the worker run, or on the thread
 * that released it last; also when this fails. */
DISTAG_API distag_status distag_value_create_object(const char *type, void *object /* nullable */,
                                                    distag_deleter destroy /* nullable */, distag_value **out_value,
                                                    distag_error *err);

/* The same handle seen as a value, which needs no release of its own. NULL for NULL. Rrefs: since 0.2. */
DISTAG_API distag_value *distag_tensor_as_value(distag_tensor *tensor);
DISTAG_API distag_value *distag_rref_as_value(distag_rref *rref);

/* The kind of a value, and items of a list or a map; an item is NULL also when there is no memory for its handle. */
DISTAG_API distag_value_kind distag_value_get_kind(distag_value *value);
DISTAG_API size_t distag_value_get_count(distag_value *value);                         /* items of a list or map */
DISTAG_API distag_value *distag_value_get_item(distag_value *value, size_t index);     /* NULL past the end */
DISTAG_API const char *distag_value_get_key(distag_value *value, size_t index);        /* keys of a map are sorted */
DISTAG_API distag_value *distag_value_get_entry(distag_value *value, const char *key); /* NULL when it is not there */

/* The content of a value; rrefs and objects since 0.2. get_float64 takes an int64 too.
 * Fails: INVALID_ARGUMENT naming the kind that is wanted and the one that is there. */
DISTAG_API distag_status distag_value_get_bool(distag_value *value, int32_t *out_value, distag_error *err);
DISTAG_API distag_status distag_value_get_int64(distag_value *value, int64_t *out_value, distag_error *err);
DISTAG_API distag_status distag_value_get_float64(distag_value *value, double *out_value, distag_error *err);
DISTAG_API distag_status distag_value_get_text(distag_value *value, const char **out_text, distag_error *err);
DISTAG_API distag_status distag_value_get_bytes(distag_value *value, const void **out_data, size_t *out_size,
                                                distag_error *err);
DISTAG_API distag_status distag_value_get_tensor(distag_value *value, distag_tensor **out_tensor, distag_error *err);
DISTAG_API distag_status distag_value_get_rref(distag_value *value, distag_rref **out_rref, distag_error *err);
DISTAG_API distag_status distag_value_get_object(distag_value *value, const char *type, void **out_object,
                                                 distag_error *err);

/* Copies the numbers of a list, at most `capacity` of them, and gives how many there are (since 0.3). copy_float64s
 * takes int64 too.
 * Fails: INVALID_ARGUMENT for what is no list, and naming the first item of another kind; then nothing is copied. */
DISTAG_API distag_status distag_value_copy_int64s(distag_value *value, int64_t *items /* nullable with capacity 0 */,
                                                  size_t capacity, size_t *out_count, distag_error *err);
DISTAG_API distag_status distag_value_copy_float64s(distag_value *value, double *items /* nullable with capacity 0 */,
                                                    size_t capacity, size_t *out_count, distag_error *err);

/* ==== 7. Workers ==================================================================================== since 0.1 ====
 *
 * A worker is created, given its functions, started, and shut down once. Several in one process share nothing.
 * Groups: a static group waits at the start for all its members; an open world (since 0.2) takes each at once. A worker
 * that was killed or has left may be started anew under its name and rank, also in a static group: calls by name reach
 * the new one; values that the old one made, and calls it was asked, answer PEER_RESTARTED. A rank is given again only
 * to the same name. With "tcp://" and "env://" no worker can join once rank 0 is gone; a new rank 0 begins another
 * group. "etcd://" outlives any member.
 * ================================================================================================================== */

typedef uint32_t distag_executor_type;
enum distag_executor {
  DISTAG_EXECUTOR_POOL = 1, /* callbacks run on threads of the worker (default) */
  DISTAG_EXECUTOR_HOST = 2  /* callbacks run when and where the host polls: engines, interpreters, frame loops */
};

/* The engine of "tcp://" and "ipc://" (since 0.3). Both speak ZMTP 3 and CURVE, so workers of one group may differ. The
 * threads of libzmq run no hook and no code of the host, and block all signals. libzmq ends the process in cases that
 * SECURITY.md names: a host that nothing may end takes the other one. */
typedef uint32_t distag_socket_engine_type;
enum distag_socket_engine {
  DISTAG_SOCKET_ENGINE_ZMQ = 1, /* libzmq, with two threads for each worker that uses sockets (default) */
  DISTAG_SOCKET_ENGINE_ZMTP = 2 /* distag's own, on the loop, without a thread */
};

typedef int32_t distag_log_level_type;
enum distag_log_level {
  DISTAG_LOG_ERROR = 1,
  DISTAG_LOG_WARNING = 2, /* default */
  DISTAG_LOG_INFO = 3,
  DISTAG_LOG_DEBUG = 4
};

typedef int32_t distag_member_state_type;
enum distag_member_state {
  DISTAG_MEMBER_ALIVE = 1,
  DISTAG_MEMBER_LEFT = 2, /* by its own shutdown */
  DISTAG_MEMBER_LOST = 3  /* fenced: this incarnation is never heard again */
};

/* A participant, as a worker sees it. */
typedef struct distag_member {
  uint32_t struct_size;
  int32_t rank;
  distag_member_state_type state;
  uint32_t reserved;
  uint64_t incarnation; /* random, new at each start */
  char name[128];
} distag_member;
#define DISTAG_MEMBER_INIT {sizeof(distag_member), -1, 0, 0, 0, {0}}

/* Takes one whole record; since 0.3 it has several lines where a DEADLINE, DISCONNECTED or DIVERGED has ended a call,
 * pass or collective: what went on before, at most once a second (`docs/looking.md`). */
typedef void (*distag_log_sink)(void *user_data, int32_t level, const char *message);

/* Called for each member when the worker has started, itself included, and whenever one joins, leaves or is lost
 * (since 0.2). A worker that was lost and is back is another member, by its incarnation.
 * Threads: where functions run; one at a time, in order, and none after the shutdown. May call distag. */
typedef void (*distag_member_callback)(void *user_data, distag_worker *worker, const distag_member *member);

/* Runs first, or last, on each thread distag starts for the worker: to attach it to a runtime, set its priority. */
typedef void (*distag_thread_hook)(void *user_data, const char *thread_name);

/* Allocates memory; NULL if none is left. / Frees it. */
typedef void *(*distag_allocate)(void *user_data, size_t size, size_t alignment);
typedef void (*distag_deallocate)(void *user_data, void *memory, size_t size, size_t alignment);

/* Memory for the tensors that a worker receives.
 * Threads: any, also with the host executor; destroy runs after the last block came back. */
typedef struct distag_allocator {
  uint32_t struct_size;
  uint32_t reserved;
  distag_allocate allocate;
  distag_deallocate deallocate;
  void *user_data;        /* nullable */
  distag_deleter destroy; /* nullable */
} distag_allocator;
#define DISTAG_ALLOCATOR_INIT {sizeof(distag_allocator), 0, NULL, NULL, NULL, NULL}

/* ---- Keys. With a group key all that goes over "tcp://" is encrypted (CURVE), at the rendezvous too, and
 * only workers with the same key come in: others are refused, and their start fails with DENIED. Any member that has it
 * may take any free name. Without one a worker is reachable on this machine only, and a `bind` or rendezvous of
 * other machines fails the start with DENIED; tcp on this machine then takes the key of its user, which the first
 * worker makes in distag/group.key of $XDG_STATE_HOME, else of ~/.local/state, or else fails with DENIED (since 0.3).
 * "ipc://" is for this user alone and has no keys, nor has "inproc://". ---- */

/* The keys of a worker. Instead of the group each worker may have a key of its own, and the public keys of those
 * that may connect (since 0.3). A name is then that of its key: a worker with another name is refused, and DENIED. This
 * holds at "tcp://" and "ipc://", both encrypted; there is no lane; "inproc://" checks nothing. */
typedef struct distag_security_options {
  uint32_t struct_size;
  uint32_t allow_insecure;       /* 1: without a group key tcp has none, for anybody; logged. since 0.3 */
  const char *public_key;        /* nullable: that of secret_key, which it has to fit */
  const char *secret_key;        /* nullable: what the file holds that DISTAG_SECRET_KEY_FILE names, if it does, a file
                                  * for this user alone. By distag_security_create_keys; since 0.3 */
  const char *const *peer_names; /* the workers that may connect, */
  const char *const *peer_keys;  /* and the public key of each. Without any those of the file that DISTAG_PEER_KEYS_FILE
                                  * names, likewise: "NAME KEY" in each line; since 0.3 */
  size_t peer_count;
  const char *group_key; /* nullable: what the file holds that DISTAG_GROUP_KEY_FILE names in the environment, a file
                          * for this user alone (chmod 600). The same 32 or more characters in all workers of the
                          * group, which `distag keygen` makes. since 0.3 */
  const char *rendezvous_name;   /* nullable: DISTAG_RENDEZVOUS_NAME of the environment, else "worker0". The worker that
                                  * serves "tcp://", whose key is expected there. since 0.3 */
  const char *const *initiators; /* nullable: all. The only other workers in whose backward passes this one takes part;
                                  * UNSUPPORTED without a key for each worker. since 0.3 */
  size_t initiator_count;
} distag_security_options;
#define DISTAG_SECURITY_OPTIONS_INIT \
  {sizeof(distag_security_options), 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0}

/* A new key of a worker, in text (Z85): the public one is for the lists of the others (since 0.3). */
typedef struct distag_key_pair {
  uint32_t struct_size;
  uint32_t reserved;
  char public_key[44]; /* 40 characters */
  char secret_key[44]; /* likewise */
} distag_key_pair;
#define DISTAG_KEY_PAIR_INIT {sizeof(distag_key_pair), 0, {0}, {0}}

/* Makes a new random pair (since 0.3). */
DISTAG_API distag_status distag_security_create_keys(distag_key_pair *out_keys, distag_error *err);

/* Options of a new worker. If the environment tells rank, size and rendezvous, all of it may stay zero. */
typedef struct distag_worker_options {
  uint32_t struct_size;
  distag_executor_type executor;
  int32_t rank;                 /* 0 .. world_size - 1; in an open world -1 (since 0.2) lets the group give one */
  int32_t world_size;           /* 0: this and rank come from "env://"; -1: an open world (since 0.2) */
  uint32_t thread_count;        /* of the pool; 0: one per core */
  distag_log_level_type log_level;
  int64_t call_timeout_ns;      /* of calls that set none; 0: 60 s */
  int64_t lease_ns;             /* silence after which a member is lost, not counting what this worker lacks; 0: 5 s */
  uint64_t max_in_flight_bytes; /* of requests and answers for one worker, see distag_call; 0: 256 MiB; since 0.3 */
  uint64_t max_message_bytes;   /* largest it sends and takes; peers send it no more; 0: 1 GiB */
  const char *name;             /* nullable: "worker<rank>". 1..127 of A-Z a-z 0-9 _ - . : and unique in the group */
  const char *rendezvous;       /* nullable: "env://". "tcp://host:port" (rank 0 serves), "file:///dir", "inproc://x",
                                 * since 0.3 "slurm://", "pmix://" and "etcd://host:port[,host:port]/prefix" */
  const char *job;              /* nullable: "default". Workers of different jobs never meet */
  const char *bind;             /* nullable: a private "ipc://", or "tcp://" where the way to a rendezvous on another
                                 * machine begins. "tcp://127.0.0.1:0", "tcp://0.0.0.0:4711", "ipc:///path"; since 0.3
                                 * also an interface, and ports of which the first free one is taken:
                                 * "tcp://eth0:29600-29699" */
  const char *advertise;        /* nullable: as bound. Where others find it, from outside a container or a NAT */
  const distag_security_options *security; /* nullable */
  const distag_allocator *allocator;       /* nullable */
  void *user_data;                         /* nullable; goes to the callbacks below */
  distag_deleter destroy;                  /* nullable; of user_data, after the last callback below */
  distag_log_sink on_log;                  /* nullable: nothing is logged */
  distag_member_callback on_member;        /* nullable; since 0.2 */
  distag_thread_hook on_thread_start;      /* nullable; runs on the new thread, also with the host executor */
  distag_thread_hook on_thread_stop;       /* nullable; likewise */
  uint32_t no_lane;  /* 1: sockets only, no shared memory with members of this machine, as DISTAG_LANE=0; since 0.3 */
  distag_socket_engine_type socket_engine; /* 0: as DISTAG_SOCKET_ENGINE names it (zmq or zmtp), else zmq; since 0.3 */
  uint64_t reserved_2;                     /* 0 */
} distag_worker_options;
#define DISTAG_WORKER_OPTIONS_INIT                                                                                  \
  {sizeof(distag_worker_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
   NULL, NULL, NULL, NULL, 0, 0, 0}

/* The place of this process in its group, as its launcher tells in the environment (since 0.3). */
typedef struct distag_environment {
  uint32_t struct_size;
  int32_t rank;       /* -1 in an open world: the group gives one */
  int32_t world_size; /* -1: an open world */
  int32_t local_rank; /* among the processes of this node; -1: not told, as are other -1 and 0 below */
  int32_t local_size; /* their number; 0 */
  int32_t node;       /* from 0; -1 */
  int32_t node_count; /* 0 */
  int32_t restart;    /* how often the launcher has started this anew; 0 also where it does not count */
  char launcher[16];  /* "own", "torchrun", "pmix", "slurm" or "kubernetes" */
} distag_environment;
#define DISTAG_ENVIRONMENT_INIT {sizeof(distag_environment), -1, 0, -1, 0, -1, 0, 0, {0}}

/* Tells what a worker without rank and size in its options would take: the variables of the first launcher of
 * docs/launchers.md whose rank and size are set, DISTAG_RANK and DISTAG_WORLD_SIZE before all others. An empty variable
 * counts as not set (since 0.3).
 * Threads: any, while none changes the environment.
 * Blocks where the launcher speaks PMIx, which is asked. Fails: INVALID_ARGUMENT listing all variables that are
 * missing, beside those that are there, or naming the one that holds no number of its range; DISCONNECTED, UNSUPPORTED
 * (PMIx: no launcher answers; no libpmix). */
DISTAG_API distag_status distag_get_environment(distag_environment *out_environment, distag_error *err);

/* Makes a worker that cannot be reached yet. Starts no thread, opens no socket. */
DISTAG_API distag_status distag_worker_create(const distag_worker_options *options /* nullable */,
                                              distag_worker **out_worker, distag_error *err);

/* ---- etcd (since 0.3): workers meet below the prefix of an etcd (v3), by libcurl, without which it is UNSUPPORTED.
 * DISTAG_ETCD_CACERT, DISTAG_ETCD_CERT and DISTAG_ETCD_KEY name files for TLS, DISTAG_ETCD_USER a user, and
 * DISTAG_ETCD_PASSWORD_FILE the file of its password, for this user alone (chmod 600). The place of a killed worker is
 * free once a member has lost it, or after 5 s, for which its next one waits. While most of the servers are away no
 * worker can join (DEADLINE), and members go on. ---- */

/* ---- Descriptors. Between processes a start and the first words to a member need 24 free descriptors, of which
 * about 8 stay in use, and fail without them. A static group whose sockets do not fit under the limit of open files
 * fails its start with OUT_OF_MEMORY. With the engine zmtp no connection is accepted while fewer than 8 are free, and a
 * worker that dials waits; libzmq ends the process when it accepts on "ipc://" without any. Where 32 are free one more
 * is for the socket at which `distag ps` asks. ---- */

/* Meets the group at the rendezvous and becomes reachable: in a static group once all members are there, so one thread
 * starts several workers with _async; in an open world ok means that all its members know the worker.
 * Blocks. Fails: DEADLINE listing the missing; DISCONNECTED (nothing answers at the rendezvous); INVALID_STATE (started
 * before; address, name or rank in use); INVALID_ARGUMENT (another size of the world than that of rank 0, or of the
 * first at "inproc://", "file://" and "etcd://": the others wait on, and their DEADLINE says so); DENIED (another job;
 * another group key, or none for an address beyond this machine; a key that others do not accept, or that of another
 * name); PROTOCOL. After a failure it can be started again. */
DISTAG_API distag_status distag_worker_start(distag_worker *worker, int64_t timeout_ns, distag_error *err);
DISTAG_API distag_status distag_worker_start_async(distag_worker *worker, int64_t timeout_ns,
                                                   distag_future **out_future, distag_error *err);

/* Leaves the group and stops all threads; no callback of the worker runs after it. In a static group it first serves
 * until every living member shuts down too and no call is open anywhere, so a worker that only serves starts, and shuts
 * down with DISTAG_FOREVER. In an open world it leaves alone: it refuses new calls with DISCONNECTED, and waits for
 * those that run and its own. At the timeout it leaves regardless; with timeout 0 it waits for no member.
 * Threads: any; with the host executor the caller is the thread that polls from then on.
 * Blocks, at most half a second beyond the timeout, while threads end. Fails: DEADLINE naming the functions that still
 * run: the worker has left, nothing new starts, and the next shutdown waits for them; INVALID_STATE when called from a
 * callback of this worker, which may use _async. */
DISTAG_API distag_status distag_worker_shutdown(distag_worker *worker, int64_t timeout_ns,
                                                distag_value **out_report /* nullable */, distag_error *err);
/* Its future's value is the report, a map: "clean" (bool), "missing" (list of names), "open_calls" (int64),
 * "leaked_rrefs" (list of text, empty before 0.2). A worker that runs out of memory where no call can be told leaves
 * by itself: all that is open on it fails with OUT_OF_MEMORY, and "clean" is false. Open futures complete with
 * CANCELLED. A second shutdown is ok, with the same report. Of several shutdowns at a time the earliest deadline
 * counts, and the last runs the destroy functions that are left. Callbacks on the future run before the last thread
 * stops, which a wait on the future or distag_worker_shutdown joins: do either before the library is unloaded. It
 * cannot be cancelled. */
DISTAG_API distag_status distag_worker_shutdown_async(distag_worker *worker, int64_t timeout_ns,
                                                      distag_future **out_future, distag_error *err);

/* With DISTAG_EXECUTOR_HOST, runs callbacks that are due: at most `max_items` (0: any number), and starts none once
 * `max_ns` have passed (DISTAG_FOREVER: no limit). Does not wait for more to come.
 * Threads: one at a time. The thread that polls, in the sense of 9, is the last one that did, at first the creator.
 * Fails: INVALID_STATE with the pool executor. A callback's failure goes to its caller, not here. */
DISTAG_API distag_status distag_worker_poll(distag_worker *worker, size_t max_items, int64_t max_ns,
                                            size_t *out_done /* nullable */, distag_error *err);

/* Waits until distag_worker_poll has something to run, and runs nothing: for hosts that cannot watch a descriptor
 * (since 0.3). Threads: any.
 * Blocks. Fails: DEADLINE; INVALID_STATE with the pool executor, and once the worker is shut down. */
DISTAG_API distag_status distag_worker_wait(distag_worker *worker, int64_t timeout_ns, distag_error *err);

/* A descriptor that is readable while distag_worker_poll has something to run; -1 with the pool executor. */
DISTAG_API int64_t distag_worker_get_fd(distag_worker *worker);

/* From now on these workers may connect, each with this key, and no others: for a key that is new, lost or stolen.
 * A member whose key is gone, or another one now, is lost at once, and DENIED when it comes again with the old one. It
 * replaces the list of the options; before the start, too (since 0.3).
 * Threads: any. Fails: UNSUPPORTED without a key of its own; INVALID_ARGUMENT naming the malformed key. */
DISTAG_API distag_status distag_worker_set_peers(distag_worker *worker, const char *const *names,
                                                 const char *const *keys, size_t count, distag_error *err);

/* The place of the worker in its group. */
DISTAG_API const char *distag_worker_get_name(distag_worker *worker);   /* NULL as long as it depends on the rank */
DISTAG_API int32_t distag_worker_get_rank(distag_worker *worker);       /* -1 before the start */
DISTAG_API int32_t distag_worker_get_world_size(distag_worker *worker); /* in an open world, the living members */

/* The latest member of a rank, in any state (since 0.2).
 * Fails: NOT_FOUND; before the start always. */
DISTAG_API distag_status distag_worker_get_member(distag_worker *worker, int32_t rank, distag_member *out_member,
                                                  distag_error *err);

/* The latest member of a name, in any state (since 0.2).
 * Fails: NOT_FOUND; before the start always. */
DISTAG_API distag_status distag_worker_get_member_by_name(distag_worker *worker, const char *name,
                                                          distag_member *out_member, distag_error *err);

/* Copies the ranks of the living members whose names begin with a prefix ("" for all), in ascending order, at most
 * `capacity` of them, and gives how many there are: 0 before the start (since 0.2). */
DISTAG_API distag_status distag_worker_copy_ranks(distag_worker *worker, const char *prefix,
                                                  int32_t *ranks /* nullable with capacity 0 */, size_t capacity,
                                                  size_t *out_count, distag_error *err);

/* Called by each of `ranks` (NULL: all; in an open world, all that live) with a value of its own; each gets the list of
 * all values, in the order in which it names the ranks (NULL: ascending). Also a barrier. Several may be under way:
 * gathers over the same ranks are matched in call order; a failed one is withdrawn for the next (since 0.2).
 * Blocks. Fails: DEADLINE listing the workers that did not come, at most a second late; DISCONNECTED or PEER_RESTARTED
 * naming those that are lost or have left; OVERLOADED (too many of them wait); INVALID_ARGUMENT (a rank twice, unknown,
 * this one missing; on all members a value of one that cannot be sent, naming it, and values too large together). */
DISTAG_API distag_status distag_worker_all_gather(distag_worker *worker, distag_value *value,
                                                  const int32_t *ranks /* nullable */, size_t rank_count,
                                                  int64_t timeout_ns, distag_value **out_values /* nullable */,
                                                  distag_error *err);

/* Its future's value is the list. A cancelled one is withdrawn, unless all have come by then (since 0.3). */
DISTAG_API distag_status distag_worker_all_gather_async(distag_worker *worker, distag_value *value,
                                                        const int32_t *ranks /* nullable */, size_t rank_count,
                                                        int64_t timeout_ns, distag_future **out_future,
                                                        distag_error *err);

/* ==== 8. Functions that a worker offers ========================================================== since 0.1 ==== */

/* Answers one call. It may call ops and other workers, also waiting for them: the pool makes up for a thread that
 * waits. It answers with distag_invocation_return, defers, or does neither, which answers null. A status other than 0
 * fails the call with the content of err.
 * Threads: any of the pool, several at once; with the host executor one after the other, or within another's wait. */
typedef distag_status (*distag_function)(void *user_data, distag_invocation *invocation, distag_error *err);

typedef struct distag_function_options {
  uint32_t struct_size;
  uint32_t reserved;
  const char *const *callers; /* nullable: all. The only other workers that may call it, since 0.3; UNSUPPORTED without
                               * a key for each worker */
  size_t caller_count;
} distag_function_options;
#define DISTAG_FUNCTION_OPTIONS_INIT {sizeof(distag_function_options), 0, NULL, 0}

/* Offers a function to the group under a name of 1..127 bytes, hiding a built-in op of that name. Register before
 * the start what others expect to find.
 * Fails: INVALID_STATE when the name is taken, INVALID_ARGUMENT when it begins with "distag." (the library's own). */
DISTAG_API distag_status distag_worker_register(distag_worker *worker, const char *name, distag_function function,
                                                void *user_data /* nullable */, distag_deleter destroy /* nullable */,
                                                const distag_function_options *options /* nullable */,
                                                distag_error *err);

/* Withdraws a function: calls that come from now on do not find it. Ok means that no invocation of it runs and its
 * destroy has run; answers that it deferred may still be owed. Its name can be registered again at once (since 0.2).
 * Blocks. Fails: NOT_FOUND; INVALID_STATE when called from within the function; DEADLINE: it is withdrawn, and destroy
 * runs once the last invocation of it has ended. */
DISTAG_API distag_status distag_worker_unregister(distag_worker *worker, const char *name, int64_t timeout_ns,
                                                  distag_error *err);

/* Properties of the call: its worker, caller, context, time left and arguments. */
DISTAG_API distag_worker *distag_invocation_get_worker(distag_invocation *invocation);
DISTAG_API distag_context *distag_invocation_get_context(distag_invocation *invocation); /* NULL: nothing is recorded */
DISTAG_API const char *distag_invocation_get_caller(distag_invocation *invocation);      /* name of the worker */
DISTAG_API const char *distag_invocation_get_function(distag_invocation *invocation);    /* its name; since 0.3 */
DISTAG_API const char *distag_invocation_get_traceparent(distag_invocation *invocation); /* NULL: none; since 0.3 */
DISTAG_API int64_t distag_invocation_get_time_left(distag_invocation *invocation);       /* DISTAG_FOREVER: no limit */
DISTAG_API int32_t distag_invocation_is_cancelled(distag_invocation *invocation);      /* 1: no caller waits any more */
DISTAG_API size_t distag_invocation_get_arg_count(distag_invocation *invocation);
DISTAG_API distag_value *distag_invocation_get_arg(distag_invocation *invocation, size_t index); /* NULL past the end */

/* The tensor, or the object (since 0.2), that argument `index` is, or (since 0.2) refers to as an rref of this worker.
 * Fails: INVALID_ARGUMENT naming function, argument, the kind that is wanted and the one that came. */
DISTAG_API distag_status distag_invocation_get_tensor(distag_invocation *invocation, size_t index,
                                                      distag_tensor **out_tensor, distag_error *err);
DISTAG_API distag_status distag_invocation_get_object(distag_invocation *invocation, size_t index, const char *type,
                                                      void **out_object, distag_error *err);

/* Sets the answer, which goes out when the function returns 0. An object answers distag_remote only.
 * Fails: INVALID_STATE when it is answered or deferred already, INVALID_ARGUMENT for a value that cannot travel. */
DISTAG_API distag_status distag_invocation_return(distag_invocation *invocation, distag_value *value,
                                                  distag_error *err);

/* Keeps the call open after the function has returned 0, until distag_reply_finish. Retain all
 * that the answer needs of the invocation.
 * Fails: INVALID_STATE when it is answered or deferred already. */
DISTAG_API distag_status distag_invocation_defer(distag_invocation *invocation, distag_reply **out_reply,
                                                 distag_error *err);

/* Answers with `error` when it is there and failed, else with `value` (NULL: null). A function that fails after it has
 * deferred, and before this, answers its own failure, also when it has released the reply.
 * Fails: INVALID_STATE the second time, also after that failure, and after the shutdown of its worker. */
DISTAG_API distag_status distag_reply_finish(distag_reply *reply, distag_value *value /* nullable */,
                                             const distag_error *error /* nullable */, distag_error *err);
DISTAG_API int32_t distag_reply_is_cancelled(distag_reply *reply); /* 1: no caller waits any more */

/* ==== 9. Calls and futures ======================================================================= since 0.1 ==== */

typedef struct distag_call_options {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t timeout_ns;        /* 0: call_timeout_ns of the worker; DISTAG_FOREVER: none */
  distag_invocation *within; /* nullable: the call being answered; its deadline and cancellation bound this one */
  const char *label;         /* nullable: shows in errors, of passes too, and in reports; 127 bytes (since 0.2) */
  const char *traceparent;   /* nullable: see below; "": none (since 0.3) */
} distag_call_options;
#define DISTAG_CALL_OPTIONS_INIT {sizeof(distag_call_options), 0, 0, NULL, NULL, NULL}

/* ---- A traceparent (W3C Trace Context, level 1) says where a call belongs in a trace of the host: it reaches the
 * function. Calls without one carry that of the call being answered: `within`, else the one that lent their context,
 * else the one whose function runs on this thread, and so do callbacks on futures that were given there. A malformed
 * one is dropped and counted, and the call goes on without; one of a later version goes on as version 00. ---- */

/* ---- Budgets. Requests that the callee has not begun take room, max_in_flight_bytes of this worker for each callee;
 * those beyond wait here, in their order. The blocking call waits up to its deadline; the future of an _async one is
 * OVERLOADED at once where as many bytes wait already: wait for earlier futures first. One larger than all of it goes
 * alone. So plan for each callee with twice max_in_flight_bytes, the largest request, and one request of each thread
 * that blocks; request_bytes_open and request_bytes_waiting of distag_stats say how much it is. Answers that the
 * caller's library has not read take max_in_flight_bytes of the callee: beyond them no call of that caller begins. A
 * callee takes twice its max_in_flight_bytes of one caller, at least 512 MiB, and answers OVERLOADED beyond. ---- */

/* Calls a function of the worker named `to`, possibly itself, and waits for the answer. A built-in op can be called
 * as well: its inputs (null: left out), then a map if it needs attributes; several outputs come as a list. With a
 * context, tensors that require grad are recorded across the call and its answer; else they arrive without history.
 *  1. Ok: the function ran once, and out_result is its answer.
 *  2. A failure with DISTAG_ERROR_MAY_HAVE_RUN: it ran and failed, or may have run.
 *  3. Any other failure: it did not run.
 * Ownership: arguments are retained until nothing needs them, never copied.
 * Blocks. Fails: NOT_FOUND (worker, function), DENIED, DEADLINE, DISCONNECTED, PEER_RESTARTED, OVERLOADED (budgets),
 * CANCELLED; INVALID_STATE (not started, context ended); INVALID_ARGUMENT (a context of another worker); OUT_OF_MEMORY
 * (here or at `to`); or as the function does, with its status and the rank where it arose. */
DISTAG_API distag_status distag_call(distag_worker *worker, distag_context *context /* nullable */, const char *to,
                                     const char *function, distag_value *const *args, size_t arg_count,
                                     const distag_call_options *options /* nullable */,
                                     distag_value **out_result /* nullable */, distag_error *err);
DISTAG_API distag_status distag_call_async(distag_worker *worker, distag_context *context /* nullable */,
                                           const char *to, const char *function, distag_value *const *args,
                                           size_t arg_count, const distag_call_options *options /* nullable */,
                                           distag_future **out_future, distag_error *err);

/* 1 once it is complete, with a value or a failure. */
DISTAG_API int32_t distag_future_poll(distag_future *future);

/* Waits until it is complete, then answers as the operation did: ok, or its failure. Blocks. Fails: DEADLINE after
 * `timeout_ns` (distag_future_poll still says 0); on the pool OVERLOADED (256 wait) or OUT_OF_MEMORY (no threads). */
DISTAG_API distag_status distag_future_wait(distag_future *future, int64_t timeout_ns, distag_error *err);

/* The value of a complete future, null where the operation has none; lent by the future.
 * Fails: as the operation did; INVALID_STATE when it is not complete. */
DISTAG_API distag_status distag_future_get_value(distag_future *future, distag_value **out_value, distag_error *err);

/* Asks the operation to stop, at the callee too, and completes the future with CANCELLED unless it is complete. */
DISTAG_API void distag_future_cancel(distag_future *future);

/* Sees a complete future. */
typedef void (*distag_future_callback)(void *user_data, distag_future *future);

/* Calls back once it is complete, soon if it is complete already, but never from inside this function. */
DISTAG_API distag_status distag_future_on_done(distag_future *future, distag_future_callback callback,
                                               void *user_data /* nullable */, distag_deleter destroy /* nullable */,
                                               distag_error *err);

/* Makes the value of the next future, or its failure, of a complete one; NULL stands for null (since 0.2). */
typedef distag_status (*distag_future_continuation)(void *user_data, distag_future *future, distag_value **out_value,
                                                    distag_error *err);

/* A future that completes with the value that `continuation` makes of this one (since 0.2). It runs once this one is
 * complete, never from inside this function, and not at all once the next is cancelled, which cancels this one too. */
DISTAG_API distag_status distag_future_then(distag_future *future, distag_future_continuation continuation,
                                            void *user_data /* nullable */, distag_deleter destroy /* nullable */,
                                            distag_future **out_future, distag_error *err);

/* Waits until all have a value, or the first one fails, and answers as that one did. Blocks. Fails: DEADLINE. */
DISTAG_API distag_status distag_wait_all(distag_future *const *futures, size_t count, int64_t timeout_ns,
                                         distag_error *err);

/* ---- Events (since 0.3): for hosts that nothing may call back (code under a JIT, ahead-of-time runtimes). They need
 * DISTAG_EXECUTOR_HOST. Events come in order, by the queue that distag_worker_poll runs: they are taken, or wait for
 * that. distag_worker_wait returns while there is one. The descriptor is readable when one comes, until a poll, a take
 * or a blocking call of the polling thread: after each of these, take until DEADLINE with a timeout of 0. ---- */

typedef uint32_t distag_event_kind;
enum distag_event_kind_code {
  DISTAG_EVENT_CALL = 1,  /* a call of a function that was offered */
  DISTAG_EVENT_FUTURE = 2 /* a future that was posted, and is complete */
};

typedef struct distag_event {
  uint32_t struct_size;
  distag_event_kind kind;
  uint64_t tag;                  /* as given to distag_worker_offer or distag_future_post */
  distag_invocation *invocation; /* CALL: the taker's, on any thread, until distag_invocation_finish */
  distag_future *future;         /* FUTURE: one reference for the taker */
} distag_event;
#define DISTAG_EVENT_INIT {sizeof(distag_event), 0, 0, NULL, NULL}

/* Offers a function, as distag_worker_register does, whose calls come as events.
 * Fails: as distag_worker_register; INVALID_STATE with the pool executor, or when the worker has left. */
DISTAG_API distag_status distag_worker_offer(distag_worker *worker, const char *name, uint64_t tag,
                                             const distag_function_options *options /* nullable */,
                                             distag_error *err);

/* Has an event come to a worker, the future's own or another, once the future is complete; dropped with the worker.
 * Fails: INVALID_STATE with the pool executor, or when the worker is shut down. */
DISTAG_API distag_status distag_future_post(distag_future *future, distag_worker *worker, uint64_t tag,
                                            distag_error *err);

/* Takes the next event. A call that is over before (late, cancelled) gives none. The thread is the one that polls from
 * then on, and runs what else is due, such as destroy functions.
 * Threads: as distag_worker_poll.
 * Blocks. Fails: DEADLINE; INVALID_STATE with the pool executor, and once the worker has left and none is there. */
DISTAG_API distag_status distag_worker_take_event(distag_worker *worker, int64_t timeout_ns, distag_event *out_event,
                                                  distag_error *err);

/* Answers a call that was taken, as distag_reply_finish does, and ends the invocation. One that is never finished fails
 * its call at its deadline or at the shutdown, and ends with the last reference to its worker.
 * Fails: INVALID_STATE after the shutdown, and for one that is lent to a function; it stays the taker's then. */
DISTAG_API distag_status distag_invocation_finish(distag_invocation *invocation /* take */,
                                                  distag_value *value /* nullable */,
                                                  const distag_error *error /* nullable */, distag_error *err);

/* ==== 10. Contexts and the backward pass ============================================================ since 0.1 ====
 *
 * A context is one forward computation and its backward passes, in every process that its calls reached. Each worker
 * keeps its part of the graph there, and after distag_backward the gradients of its own leaves. Take one for each
 * training step. It is the wrong choice for inference (make calls without one) and for what outlives a step (rrefs).
 * ================================================================================================================== */

/* Makes a context, to be given to the calls of a forward and to its backward passes; without a worker, for training
 * within this process.
 * Ownership: it ends with the last reference of its creator, once the calls and passes the creator began are over, here
 * and on every worker it reached: records and gradients are dropped, calls and passes that others began end with
 * CANCELLED. References that functions took do not keep it, on the creator's own worker either; calls on them then
 * answer INVALID_STATE.
 * Fails: INVALID_STATE when the worker is not started. */
DISTAG_API distag_status distag_context_create(distag_worker *worker /* nullable */, distag_context **out_context,
                                               distag_error *err);

/* The same on every worker: rank of the creator in the upper 16 bits, a counter below. */
DISTAG_API uint64_t distag_context_get_id(distag_context *context);

typedef uint32_t distag_backward_mode_type;
enum distag_backward_mode {
  DISTAG_BACKWARD_SMART = 1, /* finds out which calls the roots depend on, then runs exactly those (default) */
  DISTAG_BACKWARD_FAST = 2   /* expects that they depend on every recorded call, and saves the search */
};

typedef struct distag_backward_options {
  uint32_t struct_size;
  distag_backward_mode_type mode;
  uint32_t retain_graph;            /* 1: keep the graph for another pass */
  uint32_t create_graph;            /* 1: gradients have a history (since 0.3, see distag_backward) */
  int64_t timeout_ns;               /* 0: none; the loss of a worker ends the pass anyway */
  distag_tensor *const *seeds;      /* nullable: a gradient for each root; NULL for one that is a scalar */
  distag_rref *const *remote_roots; /* nullable: scalar roots that live on other workers (since 0.2) */
  size_t remote_root_count;
} distag_backward_options;
#define DISTAG_BACKWARD_OPTIONS_INIT {sizeof(distag_backward_options), 0, 0, 0, 0, NULL, NULL, 0}

/* Gradients of gradients (since 0.3): with create_graph the gradients have a history, through seeds that require grad
 * too. Take them by distag_get_gradients, apply ops to them, and give the result as a root to a second pass; with
 * create_graph again a third may follow. If the first pass stayed on one worker, another context keeps gradients from
 * adding up; else use the same. The graph is retained: it goes with the gradients and what was made of them, between
 * workers with the context or by a pass without retain_graph. Each op with a gradient takes part; derivatives are
 * those at the values that ops took, whatever was written since. Hooks see the history, and what they give in a
 * gradient's place counts with its own. Refused as UNSUPPORTED before anything is committed: custom ops (by name),
 * joint contexts, sharded tensors, and peers whose distag is too old. */

/* Runs a backward pass from the roots through every worker they depend on, and adds the gradient of each leaf to the
 * context on its worker: of all leaves, or after any failure of none. A root without a seed has one element. The same
 * root twice counts twice. Passes may run side by side in a context; of those that share history, all but the last
 * retain the graph.
 * Blocks. Fails: INVALID_ARGUMENT (no roots; one that needs no gradient, has no history, or misses a seed; a seed's
 * shape), GRAPH_FREED, UNREACHED_SEND, DEADLINE, CANCELLED, DISCONNECTED, PEER_RESTARTED, INVALID_STATE (context
 * ended), or as a custom op does. The message names worker, node and cause. */
DISTAG_API distag_status distag_backward(distag_context *context, distag_tensor *const *roots, size_t root_count,
                                         const distag_backward_options *options /* nullable */, distag_error *err);
/* Its future has the value null. Fails also: UNSUPPORTED without a worker, which leaves no thread to run it. */
DISTAG_API distag_status distag_backward_async(distag_context *context, distag_tensor *const *roots, size_t root_count,
                                               const distag_backward_options *options /* nullable */,
                                               distag_future **out_future, distag_error *err);

/* Takes a snapshot of the gradients that leaves of this worker have in the context, summed over its passes; empty
 * before the first. Every worker has its own; a snapshot outlives the context.
 * Ownership: The snapshot is the caller's, to be released.
 * Blocks while a pass that ran here awaits its verdict, at most for the lease of this worker.
 * Fails: DEADLINE (no verdict yet) and DISCONNECTED (the initiator is lost), naming the pass; INVALID_STATE when the
 * context has ended. */
DISTAG_API distag_status distag_get_gradients(distag_context *context, distag_gradients **out_gradients,
                                              distag_error *err);
/* Completes, with null, when the passes that have run here by now have their verdicts: then distag_get_gradients
 * answers at once (since 0.3). Fails as that would; and UNSUPPORTED without a worker, where there is no wait. */
DISTAG_API distag_status distag_context_settle_async(distag_context *context, distag_future **out_future,
                                                     distag_error *err);
/* The leaves that were reached, in the order of their ids. */
DISTAG_API size_t distag_gradients_get_count(distag_gradients *gradients);
DISTAG_API distag_tensor *distag_gradients_get_tensor(distag_gradients *gradients, size_t index);   /* the leaf */
DISTAG_API distag_tensor *distag_gradients_get_gradient(distag_gradients *gradients, size_t index); /* its gradient */

/* The gradient of one leaf; NULL when no pass has reached it. */
DISTAG_API distag_tensor *distag_gradients_find(distag_gradients *gradients, distag_tensor *tensor);

/* The content of a context on this worker. */
typedef struct distag_context_info {
  uint32_t struct_size;
  uint32_t send_count;     /* calls and answers recorded here, and gradients with a history: sent, */
  uint32_t recv_count;     /* and received; a pass that does not retain the graph frees those it ran through */
  uint32_t known_count;    /* workers it exchanged calls with in this context */
  uint32_t gradient_count; /* leaves that have one; no pass lowers it */
  uint32_t pass_count;     /* running now */
} distag_context_info;
#define DISTAG_CONTEXT_INFO_INIT {sizeof(distag_context_info), 0, 0, 0, 0, 0}

/* The counts as they are now.
 * Fails: INVALID_STATE when the context has ended. */
DISTAG_API distag_status distag_context_get_info(distag_context *context, distag_context_info *out_info,
                                                 distag_error *err);

/* Ranks of the known workers in ascending order, at most `capacity` of them, and how many there are. */
DISTAG_API distag_status distag_context_copy_known_ranks(distag_context *context,
                                                         int32_t *ranks /* nullable with capacity 0 */,
                                                         size_t capacity, size_t *out_count, distag_error *err);

/* ==== 11. Remote references ========================================================================= since 0.2 ====
 *
 * An rref names a value that stays at its owner: a model, a table, an environment. Calls carry the name, never the
 * value. It is the wrong choice for small results (let the call return them) and for one tensor that many workers hold
 * in parts (section 17).
 * ================================================================================================================== */

/* ---- The life of a value. To pass an rref in a call or an answer is to share it, which waits for no message of
 * the owner. The value goes when its last reference, on any worker, is released or lost, or with its owner. If
 * making it failed, every use answers that failure; one that was never seen is logged. A reference whose owner is
 * lost answers DISCONNECTED, or PEER_RESTARTED once a new incarnation is back under the name. If the worker that
 * passed a reference on is lost before the owner has heard of it, the value may be gone: then it answers NOT_FOUND.
 * Values that refer to each other in a circle live as long as their owners; within one worker, for ever. ---- */

/* Shares a value of this worker, which becomes its owner; also before the start.
 * Fails: INVALID_ARGUMENT (a value with an rref of another worker of this process), INVALID_STATE (shut down). */
DISTAG_API distag_status distag_rref_create(distag_worker *worker, distag_value *value, distag_rref **out_rref,
                                            distag_error *err);

/* Calls a function as distag_call does, but leaves its answer there; returns before it ran. The function goes on when
 * the caller is lost or releases the rref.
 * Fails: as distag_call_async; a later failure is that of the value. */
DISTAG_API distag_status distag_remote(distag_worker *worker, distag_context *context /* nullable */, const char *to,
                                       const char *function, distag_value *const *args, size_t arg_count,
                                       const distag_call_options *options /* nullable */, distag_rref **out_rref,
                                       distag_error *err);

/* Waits for the value and gives it: at its owner the value itself, elsewhere a copy, recorded in the context. The
 * options are those of the wait.
 * Blocks. Fails: as distag_call; UNSUPPORTED for an object that lives elsewhere. */
DISTAG_API distag_status distag_rref_fetch(distag_rref *rref, distag_context *context /* nullable */,
                                           const distag_call_options *options /* nullable */,
                                           distag_value **out_value, distag_error *err);
DISTAG_API distag_status distag_rref_fetch_async(distag_rref *rref, distag_context *context /* nullable */,
                                                 const distag_call_options *options /* nullable */,
                                                 distag_future **out_future, distag_error *err);

/* The value itself, at its owner, lent by the reference. A function starts only when the values of its own rref
 * arguments are there.
 * Fails: INVALID_STATE naming the owner when it is elsewhere, or when the value is not there yet; as making it did. */
DISTAG_API distag_status distag_rref_get_local(distag_rref *rref, distag_value **out_value, distag_error *err);

/* Properties of a reference. */
DISTAG_API const char *distag_rref_get_owner(distag_rref *rref); /* name of the worker that has the value */
DISTAG_API int32_t distag_rref_is_owner(distag_rref *rref);      /* 1: this handle's worker has it */
DISTAG_API int32_t distag_rref_is_confirmed(distag_rref *rref);  /* 1: the owner knows of this reference */
DISTAG_API uint64_t distag_rref_get_id(distag_rref *rref);       /* the same for all references to one value */

/* ==== 12. Optimizers ============================================================================= since 0.2 ==== */

/* Makes an optimizer, "sgd" "adagrad" "adam" "adamw" "adadelta" "rmsprop" "adamax" or "rprop", with the rules and
 * defaults of PyTorch. A parameter is a tensor of this process (distag_tensor_as_value), or an rref to a tensor or to a
 * list of tensors, anywhere: float32 or float64, without history. The optimizer holds it; its state (momentum ...) is
 * kept at its owner. The worker may be NULL when all are tensors: then everything is done on the calling
 * thread. Steps of all optimizers on the parameters of one worker are done one after the other. Nothing is sent before
 * the first step.
 * Fails: NOT_FOUND (kind), INVALID_ARGUMENT (a value that can be none; a parameter twice, also as a tensor and as an
 * rref to it: if that value is elsewhere or not there yet, the first step answers so). */
DISTAG_API distag_status distag_optimizer_create(distag_worker *worker /* nullable */, const char *kind,
                                                 distag_value *const *parameters, size_t parameter_count,
                                                 distag_optimizer **out_optimizer, distag_error *err);

/* Changes a setting from the next step on: "lr" "momentum" "nesterov" "weight_decay" "beta1" "beta2" "eps" ..., with
 * 0 and 1 for no and yes.
 * Fails: NOT_FOUND listing the settings there are, INVALID_ARGUMENT naming the range. */
DISTAG_API distag_status distag_optimizer_set(distag_optimizer *optimizer, const char *setting, double value,
                                              distag_error *err);

/* Updates each parameter with its gradient in the context, at all owners side by side; one without gradient stays as it
 * is. Each owner applies it to all of its parameters or to none, as one write: an op, a call or a fetch that reads
 * some of them meanwhile sees all of those before the step or all after it. After a failure the message names the
 * owners that did not apply it, or may not have, and distag_optimizer_copy_stepped_ranks gives those that did.
 * Blocks. Fails: as distag_call and distag_get_gradients; INVALID_STATE for settings that do not go together, and for a
 * parameter that borrows its memory or has got a history; PEER_RESTARTED once an owner has lost its state. */
DISTAG_API distag_status distag_optimizer_step(distag_optimizer *optimizer, distag_context *context,
                                               const distag_call_options *options /* nullable */, distag_error *err);
/* Its future has the value null. Fails also: UNSUPPORTED without a worker, which leaves no thread to run it. */
DISTAG_API distag_status distag_optimizer_step_async(distag_optimizer *optimizer, distag_context *context,
                                                     const distag_call_options *options /* nullable */,
                                                     distag_future **out_future, distag_error *err);

/* Ranks of the owners that applied the last step, at most `capacity`, and how many there are; without a worker -1. */
DISTAG_API distag_status distag_optimizer_copy_stepped_ranks(distag_optimizer *optimizer,
                                                             int32_t *ranks /* nullable with capacity 0 */,
                                                             size_t capacity, size_t *out_count, distag_error *err);

/* Scales the context's gradients of all parameters so that their joint 2-norm is at most `max_norm`; gives the norm
 * that it found.
 * Blocks. Fails: as distag_optimizer_step; INVALID_STATE when the norm is not finite, or, naming the owner, another
 * pass ended there meanwhile: then nothing was scaled there. */
DISTAG_API distag_status distag_optimizer_clip(distag_optimizer *optimizer, distag_context *context, double max_norm,
                                               const distag_call_options *options /* nullable */,
                                               double *out_norm /* nullable */, distag_error *err);

/* Gives the state at all owners and the settings as one value, a map with tensors.
 * Blocks until the steps before it are done. Fails: as distag_call. */
DISTAG_API distag_status distag_optimizer_save(distag_optimizer *optimizer,
                                               const distag_call_options *options /* nullable */,
                                               distag_value **out_state, distag_error *err);

/* Puts a saved state back into an optimizer of the same kind and parameters. Blocks until the steps before it are done.
 * Fails: as distag_call; INVALID_ARGUMENT when it does not fit (an owner for which it does not is not changed). */
DISTAG_API distag_status distag_optimizer_load(distag_optimizer *optimizer, distag_value *state,
                                               const distag_call_options *options /* nullable */, distag_error *err);

/* Clip, save and load without waiting (since 0.3). The values of their futures: the norm, the state, null. A cancelled
 * one may be done at some owners. Fails also: UNSUPPORTED without a worker. */
DISTAG_API distag_status distag_optimizer_clip_async(distag_optimizer *optimizer, distag_context *context,
                                                     double max_norm, const distag_call_options *options /* nullable */,
                                                     distag_future **out_future, distag_error *err);
DISTAG_API distag_status distag_optimizer_save_async(distag_optimizer *optimizer,
                                                     const distag_call_options *options /* nullable */,
                                                     distag_future **out_future, distag_error *err);
DISTAG_API distag_status distag_optimizer_load_async(distag_optimizer *optimizer, distag_value *state,
                                                     const distag_call_options *options /* nullable */,
                                                     distag_future **out_future, distag_error *err);

/* ==== 13. Looking inside ========================================================================= since 0.1 ==== */

/* Counters of one worker: totals since its start, or numbers of the moment ("now"). */
typedef struct distag_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t calls_made, calls_served, calls_failed;
  uint64_t calls_open;          /* now, made and served */
  uint64_t futures_open, contexts; /* now, both */
  uint64_t passes_run, passes_failed;
  uint64_t passes_open;         /* now */
  uint64_t rrefs_owned;         /* now */
  uint64_t rrefs_used;          /* now, of other owners */
  uint64_t rref_forks;          /* now, held by other workers on values of ours */
  uint64_t bytes_sent, bytes_received;
  uint64_t bytes_in_flight;     /* now: sent, and not acknowledged by the peers' libraries */
  uint64_t messages_replayed;   /* sent again after a reconnect */
  uint64_t messages_duplicated; /* received again and dropped */
  uint64_t messages_refused;    /* malformed, oversized, not allowed, or of a fenced incarnation; and connections that
                                 * were refused, here and at the rendezvous that this worker serves */
  uint64_t peers_connected;     /* now */
  uint64_t peers_lost;
  uint64_t callbacks_waiting;   /* now, for a thread of the pool or for distag_worker_poll */
  uint64_t request_bytes_open;    /* now, since 0.3: of requests that callees have not begun */
  uint64_t request_bytes_waiting; /* now, since 0.3: of requests that wait here for room, see "Budgets" */
  uint64_t traceparents_dropped; /* malformed ones, of calls made and served (since 0.3) */
} distag_stats;
#define DISTAG_STATS_INIT {sizeof(distag_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
                           0, 0}

/* The counters as they are; counters that belong together may be a moment apart, more where the loop is busy. */
DISTAG_API distag_status distag_worker_get_stats(distag_worker *worker, distag_stats *out_stats, distag_error *err);

/* The same in the text format of Prometheus: "distag_<field>", counters with "_total" behind, each with HELP and TYPE
 * and the label worker="NAME", empty while it depends on the rank (since 0.3). Then histograms of seconds, 10 us to
 * 100 s: distag_call_seconds (made, until their end), distag_queue_seconds and distag_served_seconds (from the arrival
 * to the begin, and to the end), with function="NAME", which is "other" beyond 64 names; distag_pass_seconds (begun
 * here) and distag_collective_seconds. Copied as the reports below; before the start and after the shutdown too. */
DISTAG_API distag_status distag_worker_copy_metrics(distag_worker *worker, char *buffer /* nullable with capacity 0 */,
                                                    size_t capacity, size_t *out_size, distag_error *err);

/* ---- Traces. A file for each worker, FOLDER/NAME.trace.json (NAME.2.trace.json if that is there), in the Trace Event
 * Format, which https://ui.perfetto.dev shows: calls on both sides, with flows from call to run and from answer to
 * caller, passes, collectives, optimizer steps, members, spans of the host. Whole events are written each second at the
 * latest, so the file of a process that was killed can be read too. Events that cannot be written, for want of room,
 * time or disk, are counted in the file ("dropped events"); the first loss is logged, and the worker goes on.
 * DISTAG_TRACE=FOLDER in the environment traces each worker from its start on, without a word to the program. ---- */

typedef struct distag_trace_options {
  uint32_t struct_size;
  uint32_t detail;    /* later */
  uint64_t max_bytes; /* of the file, 65,536 or more; 0: 256 MiB */
  const char *folder; /* nullable: what DISTAG_TRACE names. It has to be there */
} distag_trace_options;
#define DISTAG_TRACE_OPTIONS_INIT {sizeof(distag_trace_options), 0, 0, NULL}

/* Begins the trace of a started worker, on a thread of its own (since 0.3).
 * Blocks until the file is made. Fails: INVALID_STATE (traced already, not started, or a file that cannot be made). */
DISTAG_API distag_status distag_worker_start_trace(distag_worker *worker,
                                                   const distag_trace_options *options /* nullable */,
                                                   distag_error *err);

/* Ends the trace and closes its file, as the shutdown does (since 0.3). Nothing where none is written.
 * Blocks at most 10 s. Fails: DEADLINE where the disk is slower. */
DISTAG_API distag_status distag_worker_stop_trace(distag_worker *worker, distag_error *err);

/* A span of the host in the trace, from here to distag_trace_end on any thread, when it is written (since 0.3). Spans
 * may overlap. `out_span` is 0, which distag_trace_end takes, where nothing is traced or 65,536 are open.
 * Fails: INVALID_ARGUMENT (a label of more than 127 bytes). */
DISTAG_API distag_status distag_trace_begin(distag_worker *worker, const char *label, uint64_t *out_span,
                                            distag_error *err);
DISTAG_API void distag_trace_end(distag_worker *worker, uint64_t span);

/* Reports in JSON, for people and tools (since 0.2); keys may be added. Of a worker: "worker", "members", open "calls"
 * with function, label, age_ms and time_left_ms, "contexts" with their "passes" and what those wait for, "rrefs", the
 * last "events"; since 0.3 open "collectives" and the ranks they wait for, the "last" 100 of the 1,000 calls, passes
 * and collectives that ended last, "lane", here and of each member: whether messages go by shared memory, or why not,
 * and "sockets". Of a context on this worker: its counts, "passes", "sends", those that "never_fired" (no gradient
 * has come), and the graph behind these sends as "nodes" and "edges".
 * Copies at most `capacity` bytes, the last of them NUL; `out_size` is the whole length without it, which may be
 * another the next time.
 * Fails: DEADLINE when the worker does not answer within a second; INVALID_STATE when the context has ended. */
DISTAG_API distag_status distag_worker_copy_report(distag_worker *worker, char *buffer /* nullable with capacity 0 */,
                                                   size_t capacity, size_t *out_size, distag_error *err);
DISTAG_API distag_status distag_context_copy_report(distag_context *context,
                                                    char *buffer /* nullable with capacity 0 */, size_t capacity,
                                                    size_t *out_size, distag_error *err);

/* The report of a group, through one member (since 0.3): "members", each with "name", "rank", "state" and "report", or
 * null and why as "silent" where it does not answer in time. A report has the 64 oldest "calls", with the function
 * "within" which they were made, and "waits" for passes and collectives, with the "ranks" that have not come.
 * Copied as the reports above; each copy asks anew. `distag why` reads it; the command asks workers of its user at a
 * socket of theirs, which DISTAG_PS=0 in the environment of a worker turns off.
 * Blocks at most a second beyond the timeout; runs no callback meanwhile. Members answer while their functions hang.
 * Fails: INVALID_STATE unless started; DEADLINE when the loop of this worker does not answer. */
DISTAG_API distag_status distag_worker_copy_group_report(distag_worker *worker, int64_t timeout_ns,
                                                         char *buffer /* nullable with capacity 0 */,
                                                         size_t capacity, size_t *out_size, distag_error *err);

/* Handles of this process that are not released yet; 0 before the library is unloaded. */
DISTAG_API uint64_t distag_get_handle_count(void);

/* The same in JSON, by kind, copied as the reports above (since 0.3). With DISTAG_VALIDATE=1 also each handle, with the
 * function that "made_by" it ("distag": on its thread, or by a getter), "age_ms", "lent" if another ends it, and
 * "released" if the host has, while a future or another handle needs it. Of "deferred" tensors: how many are "alive"
 * and not made, "bytes_made_here" as shards, and "bytes_made_whole". */
DISTAG_API distag_status distag_copy_handle_report(char *buffer /* nullable with capacity 0 */, size_t capacity,
                                                   size_t *out_size, distag_error *err);

/* With DISTAG_VALIDATE=1: releases of handles that were lent, or released before, or of another type; retains of the
 * latter two; and lent handles that a callback passed to distag as its own. They did nothing. Counted since the library
 * was loaded; without DISTAG_VALIDATE=1 always 0 (since 0.3). */
DISTAG_API uint64_t distag_get_misuse_count(void);

/* "0.3.0": of the library, where the macros are of the header. Static text. */
DISTAG_API const char *distag_get_version(void);

/* ==== 14. Meshes ==================================================================================== since 0.3 ====
 *
 * A mesh arranges workers, its members, as a grid whose axes have names. All members run one program: each makes the
 * same calls on the mesh, marked "Collective", in the same order, with arguments that agree in all but data. It is the
 * wrong choice for workers with different programs, or that come and go: use calls (section 9).
 * Collective calls are numbered and compared: members that differ all get DIVERGED, with both calls; of a member that
 * does not come DEADLINE says where it is. One thread at a time makes the calls of a line (distag_mesh_open_line;
 * INVALID_STATE naming both calls); members in one process take a thread each.
 * ================================================================================================================== */

/* ---- Bounds and the end of a mesh. At most 256 calls of a line are under way: a blocking one waits for room, the
 * future of one more fails with OVERLOADED. From members that had room this one then differs, so wait for earlier
 * futures before. A mesh ends, for all members, when one of them is lost, diverges, or fails alone, and for a member
 * with its first call that needs one that left. From then on its calls answer that failure, as the member met it first.
 * A failure that is the same on all members, as of an argument, ends nothing. ---- */

enum distag_hidden_moves {
  DISTAG_HIDDEN_ALLOW = 1, /* ops move shards where their inputs do not fit each other (default) */
  DISTAG_HIDDEN_LOG = 2,   /* and a warning names op, specs and bytes */
  DISTAG_HIDDEN_REFUSE = 3 /* INVALID_STATE instead. To sum partial tensors, and to gather parameters, is not hidden */
};

typedef struct distag_mesh_options {
  uint32_t struct_size;
  uint32_t hidden_moves;      /* DISTAG_HIDDEN_... */
  uint32_t check_replicas;    /* 1: plain tensors that should be equal on all are compared by hash, to debug */
  uint32_t keep_gathered;     /* 1: gathered parameters stay until their backward, instead of being gathered again */
  int64_t timeout_ns;         /* of collective calls that take none; 0: call_timeout_ns of the worker */
  uint64_t bucket_bytes;      /* gradients are summed in buckets of about this size; 0: 25 MiB; 1: each alone */
  const char *name;           /* nullable: "mesh"; shows in errors, reports and pictures */
  const int64_t *outer_shape; /* nullable: no hybrid mesh. One size per axis, over granules; shape is then within one */
  const int64_t *granules;    /* nullable: the hosts. The granule of each member, in the order of ranks */
} distag_mesh_options;
#define DISTAG_MESH_OPTIONS_INIT {sizeof(distag_mesh_options), 0, 0, 0, 0, 0, NULL, NULL, NULL}

/* ---- Granules. Members that are near each other make a granule. Granules count up from their lowest; hosts count
 * from 0 in the order of their lowest rank. ---- */

/* Makes a mesh of `ranks` (NULL: all living members of the group, ascending), row-major, of at most 4,096 members and 8
 * axes. One size of the shape may be -1; shape (NULL, 0) is the one of DISTAG_AUTO_SPMD_MESH ("2,2"), else all in one
 * axis and a second of size 1. Axes are named by identifiers (NULL: "axis0" ...). With outer_shape it is hybrid: each
 * axis has inner times outer positions, the outer ones change the granule. Without a worker (ranks NULL: 0 to
 * rank_count - 1) a mesh serves for specs, boxes and pictures only, and nothing is sent.
 * Collective over the ranks, also when the worker is in others. Blocks until all have come, at most timeout_ns.
 * Fails: INVALID_ARGUMENT (ranks, sizes or names that do not fit; ranks without this worker; granules of unequal size),
 * DIVERGED (other arguments elsewhere), DEADLINE listing the missing ones, DISCONNECTED. */
DISTAG_API distag_status distag_mesh_create(distag_worker *worker /* nullable */, const int32_t *ranks /* nullable */,
                                            size_t rank_count, const int64_t *shape /* nullable */,
                                            const char *const *axis_names /* nullable */, size_t ndim,
                                            const distag_mesh_options *options /* nullable */, distag_mesh **out_mesh,
                                            distag_error *err);
/* Its future has the value null; the mesh is there at once, and answers INVALID_STATE until that is complete. To cancel
 * it ends the mesh of those that have it; others meet the next one here, or DEADLINE. Without a worker: UNSUPPORTED. */
DISTAG_API distag_status distag_mesh_create_async(distag_worker *worker /* nullable */,
                                                  const int32_t *ranks /* nullable */, size_t rank_count,
                                                  const int64_t *shape /* nullable */,
                                                  const char *const *axis_names /* nullable */, size_t ndim,
                                                  const distag_mesh_options *options /* nullable */,
                                                  distag_mesh **out_mesh, distag_future **out_future,
                                                  distag_error *err);

/* The description of a mesh. Pointers live as long as the mesh. */
typedef struct distag_mesh_info {
  uint32_t struct_size;
  uint32_t ndim;
  int64_t count;                 /* members */
  int64_t position;              /* of this worker in ranks; -1 without a worker */
  const char *name;              /* of the mesh */
  const int64_t *shape;          /* ndim items */
  const char *const *axis_names; /* ndim items */
  const int32_t *ranks;          /* count items: the members, row-major */
  const int64_t *granules;       /* count items: of each member */
} distag_mesh_info;
#define DISTAG_MESH_INFO_INIT {sizeof(distag_mesh_info), 0, 0, 0, NULL, NULL, NULL, NULL, NULL}

/* Also of a mesh that has ended. */
DISTAG_API distag_status distag_mesh_get_info(distag_mesh *mesh, distag_mesh_info *out_info, distag_error *err);

/* Another line of the same mesh: a handle with an order of calls of its own, so that several parts of a program (micro
 * batches, threads) run side by side. Lines of one name, 1 to 127 bytes, meet; nothing is sent.
 * Fails: INVALID_STATE when this worker has a line of that name open. */
DISTAG_API distag_status distag_mesh_open_line(distag_mesh *mesh, const char *name, distag_mesh **out_line,
                                               distag_error *err);

/* The work of this worker on a mesh, all lines together, since it was made. */
typedef struct distag_mesh_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t calls;          /* collective calls, those included that sent nothing */
  uint64_t all_reduces;    /* of these and of the next five, those that sent something */
  uint64_t all_gathers;
  uint64_t reduce_scatters;
  uint64_t all_to_alls;
  uint64_t broadcasts;
  uint64_t moves;          /* of boxes from member to member, that are none of the above */
  uint64_t hidden_moves;   /* see distag_hidden_moves */
  uint64_t bytes_sent;     /* of elements, to other members */
  uint64_t bytes_received;
  uint64_t bytes_held;     /* now: pieces of calls under way, without what came before its call or step */
  uint64_t bytes_held_max;
  uint64_t plan_misses;    /* ops whose placement was worked out; the others were found in the cache */
} distag_mesh_stats;
#define DISTAG_MESH_STATS_INIT {sizeof(distag_mesh_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* The counters as they are; also of a mesh that has ended. Without a worker all are 0. */
DISTAG_API distag_status distag_mesh_get_stats(distag_mesh *mesh, distag_mesh_stats *out_stats, distag_error *err);

/* In JSON, as distag_worker_copy_report: the mesh, its "lines" with the call each member is known to be at, and
 * "moves", the last 1,000 communications, each with "op", "specs", "kind", "axes", "bytes" sent and "why".
 * Fails: DEADLINE when the worker does not answer within a second. */
DISTAG_API distag_status distag_mesh_copy_report(distag_mesh *mesh, char *buffer /* nullable with capacity 0 */,
                                                 size_t capacity, size_t *out_size, distag_error *err);

/* ==== 15. Specs ===================================================================================== since 0.3 ====
 *
 * A spec says how a tensor lies on a mesh; the library computes with the parts and moves them where ops need it. Give
 * one to inputs and parameters. It is the wrong tool for results: ops place those by their rules.
 * It has for each dim the axis that cuts it, several in order of significance, or None; then the axes over which the
 * true value is the sum of the parts that the members hold. The tensor is repeated along all other axes.
 * "('data', None)", "(('x', 'y'), None)", "(None,) sum('model')", "()". Also taken: axes by number; the forms
 * "{devices=[2,2]0,1,2,3}" of HLO, "S(0), R, P" of DTensor (one item per axis) and [{"x"}, {}] of Shardy.
 * ================================================================================================================== */

/* ---- Blocks. A dim of size d cut in n has blocks of ceil(d / n); the last ones may be smaller or empty. Nothing
 * is padded. The functions of this section send nothing, and also serve meshes that have ended. ---- */

/* The box that the member at a position holds of a tensor of this shape: offset and extent have ndim items; and its
 * number among those that hold the same, 0 .. n - 1. An empty box has the size of the dim as its offset.
 * Fails: INVALID_ARGUMENT (spec, shape, position). */
DISTAG_API distag_status distag_mesh_copy_box(distag_mesh *mesh, const char *spec, const int64_t *shape, size_t ndim,
                                              int64_t position, int64_t *offset, int64_t *extent,
                                              int64_t *out_replica, distag_error *err);

enum distag_spec_form {
  DISTAG_SPEC_TUPLE = 1,      /* ('x', None) sum('y') */
  DISTAG_SPEC_PLACEMENTS = 2, /* S(0), P(sum) */
  DISTAG_SPEC_HLO = 3,        /* {devices=[3,1,2]0,1,2,3,4,5 last_tile_dim_replicate} */
  DISTAG_SPEC_HLO_IOTA = 4,   /* {devices=[2,2]<=[4]}, UNSUPPORTED unless the ranks are 0, 1, 2 ... in order */
  DISTAG_SPEC_SHARDY = 5      /* sharding<@mesh, [{"x"}, {}], unreduced={"y"}> */
};

/* A spec for tensors of ndim dims in another form (0: TUPLE); copied as by distag_worker_copy_report. All come back
 * equal, but those of HLO without axes of size 1.
 * Fails: INVALID_ARGUMENT saying where and why the text is no spec; UNSUPPORTED where a form cannot say it. */
DISTAG_API distag_status distag_mesh_copy_spec(distag_mesh *mesh, const char *spec, size_t ndim, uint32_t form,
                                               char *buffer /* nullable with capacity 0 */, size_t capacity,
                                               size_t *out_size, distag_error *err);

enum distag_picture_format {
  DISTAG_PICTURE_TEXT = 1, /* a table for terminals (default) */
  DISTAG_PICTURE_JSON = 4, /* "boxes", each with "offset", "extent" and the ranks of its "members" */
  DISTAG_PICTURE_SVG = 5,  /* one SVG below 1 MiB for light and dark pages; at most 1,024 parts, with their table */
  DISTAG_PICTURE_HTML = 6  /* a page below 4 MiB without script or link: the SVG, the mesh, what each member holds */
};

typedef struct distag_picture_options {
  uint32_t struct_size;
  uint32_t format;     /* DISTAG_PICTURE_... */
  uint32_t color;      /* 1: TEXT with escape codes */
  uint32_t width;      /* TEXT: columns, 20 to 10,000; 0: 80 */
  uint32_t row_dim;    /* with column_dim the two dims that are drawn: 0 and 0 mean the first two */
  uint32_t column_dim;
  const char *label;   /* nullable: "CPU". Stands before the numbers of members */
} distag_picture_options;
#define DISTAG_PICTURE_OPTIONS_INIT {sizeof(distag_picture_options), 0, 0, 0, 0, 0, NULL}

/* Draws which members hold which part. Without a mesh the spec is HLO text, which names devices itself; without a shape
 * all parts are drawn alike, of ndim dims (0: as many as the spec has). Copied as by distag_worker_copy_report. */
DISTAG_API distag_status distag_visualize_sharding(distag_mesh *mesh /* nullable */, const char *spec,
                                                   const int64_t *shape /* nullable */, size_t ndim,
                                                   const distag_picture_options *options /* nullable */,
                                                   char *buffer /* nullable with capacity 0 */, size_t capacity,
                                                   size_t *out_size, distag_error *err);

/* ==== 16. Collectives on plain tensors ============================================================== since 0.3 ====
 *
 * For values that are no shards of anything; not recorded. Every sum adds in the order of the members, so results are
 * the same bits on all members, in every run, whatever the size.
 * ================================================================================================================== */

enum distag_collective_kind {
  DISTAG_ALL_REDUCE = 1,
  DISTAG_ALL_GATHER = 2,     /* one after the other along `dim`; sizes of that dim may differ */
  DISTAG_REDUCE_SCATTER = 3, /* this member's block of the reduced tensor along `dim` */
  DISTAG_ALL_TO_ALL = 4,     /* block i along `dim` goes to member i; the blocks that come are joined along `dim_to` */
  DISTAG_BROADCAST = 5,      /* of the member at `root`; tensors of the others tell dtype and shape */
  DISTAG_REDUCE = 6,         /* to the member at `root`; NULL elsewhere */
  DISTAG_PERMUTE = 7         /* to the member `shift` positions on, in a circle; gives that of the one before */
};

enum distag_reduction {
  DISTAG_SUM = 1, /* default */
  DISTAG_PRODUCT = 2,
  DISTAG_MIN = 3,
  DISTAG_MAX = 4
};

typedef struct distag_collective_options {
  uint32_t struct_size;
  uint32_t reduction; /* DISTAG_SUM ... */
  int64_t dim;        /* negative: from the end */
  int64_t dim_to;
  int64_t root;       /* a position among those that take part */
  int64_t shift;
  int64_t timeout_ns; /* 0: that of the mesh */
} distag_collective_options;
#define DISTAG_COLLECTIVE_OPTIONS_INIT {sizeof(distag_collective_options), 0, 0, 0, 0, 0, 0}

/* Among the members that differ only in `axes` ("data", "('x', 'y')"; NULL: all), which come in the order of their
 * index along these axes.
 * Collective. Blocks. Fails: as the mesh does; INVALID_ARGUMENT (a tensor that requires grad, or differs in dtype or
 * shape where it must not); DEADLINE, which ends the mesh. The future's value is the tensor, or null; to cancel it
 * drops the result here, the others get theirs. */
DISTAG_API distag_status distag_collective(distag_mesh *mesh, uint32_t kind, const char *axes /* nullable */,
                                           distag_tensor *x, const distag_collective_options *options /* nullable */,
                                           distag_tensor **out_y, distag_error *err);
DISTAG_API distag_status distag_collective_async(distag_mesh *mesh, uint32_t kind, const char *axes /* nullable */,
                                                 distag_tensor *x,
                                                 const distag_collective_options *options /* nullable */,
                                                 distag_future **out_future, distag_error *err);

/* ==== 17. Sharded tensors =========================================================================== since 0.3 ====
 *
 * A sharded tensor is a distag_tensor whose shape is that of the whole; each member has its part, the shard, as its
 * spec says. Ops take it, place their result by fixed rules and record themselves; gradients are sharded like their
 * tensors. It is the wrong choice for a model that one worker trains well: moving parts costs time.
 * Ops on sharded tensors are collective, and block where they need elements of other members. Plain tensors that need
 * no gradient go with them, as repeated everywhere; one that requires grad, and two meshes, are INVALID_ARGUMENT.
 * distag_tensor_get_data, _copy_data, _get_item answer only where this worker has the whole (else NULL, INVALID_STATE);
 * _write, _assign, _add_scaled change this member's shard, whose size and shape they take, as optimizers do.
 * Arguments and answers of calls are never sharded: send local tensors.
 * ================================================================================================================== */

/* ---- Stages behind calls. A function that is called on each member of a mesh, in one context and by any worker, may
 * compute with sharded tensors and give back its part (distag_tensor_to_local). A SMART pass there whose roots
 * depend on parts runs on all members, also on those whose part is not used, and their sharded leaves get gradients
 * there. Such passes go on side by side, and beside calls of the mesh's lines; one that fails ends the mesh only where
 * its members differ or are lost. INVALID_STATE: a part was neither given back nor kept, a member was not called in the
 * context, or the pass is FAST. ---- */

/* Writes the elements of one box of a tensor: `extent` elements of each dim from `offset` on, row-major, which take
 * `capacity` bytes. A failure goes to the reader; the box may be wanted again.
 * Threads: the one that needs the elements; several at once for several boxes. It may call anything, but reads no
 * tensor whose own source waits for this one (INVALID_STATE), and makes no calls on the line that marks or reads it. */
typedef distag_status (*distag_box_source)(void *user_data, const int64_t *offset, const int64_t *extent, size_t ndim,
                                           void *buffer, size_t capacity, distag_error *err);

enum distag_init {
  DISTAG_INIT_FULL = 1,  /* `shift` everywhere (default) */
  DISTAG_INIT_RAND = 2,  /* distag_rand of the seed, times scale, plus shift */
  DISTAG_INIT_RANDN = 3, /* distag_randn likewise */
  DISTAG_INIT_SOURCE = 4, /* the elements that the source writes, box by box */
  DISTAG_INIT_SHAPE = 5  /* none, ever: what a program for distag_plan_create is made of */
};

typedef struct distag_deferred_options {
  uint32_t struct_size;
  uint32_t init; /* DISTAG_INIT_... */
  uint64_t seed; /* of DISTAG_INIT_RAND and _RANDN, as is scale */
  double scale;  /* 0: 1 */
  double shift;
  distag_box_source source; /* nullable; of DISTAG_INIT_SOURCE, which needs it */
  void *user_data;          /* nullable */
  distag_deleter destroy;   /* nullable; runs once all elements are there, or no longer needed */
} distag_deferred_options;
#define DISTAG_DEFERRED_OPTIONS_INIT {sizeof(distag_deferred_options), 0, 0, 0, 0, NULL, NULL, NULL}

/* Makes a tensor that has a dtype, a shape and no memory yet. distag_tensor_mark_sharding makes only this worker's
 * shard of it. Reading or writing it, and giving it to an op, a call or an rref, makes the whole, once: other threads
 * wait for the one that does. Where that fails the next reader tries again. A source is called for boxes of at most
 * 64 MiB, cut along dim 0 (one index where that is larger), in order. No sharding changes a bit of the values.
 * With DISTAG_INIT_SHAPE it never has any (at most 2^55 bytes): a built-in op with such an input checks shapes, dtypes,
 * not all attributes, runs nothing, gives such tensors; deferred inputs stay so; nonzero, custom ops: UNSUPPORTED.
 * To read, send, mark, differentiate or optimize it is INVALID_STATE.
 * Fails: INVALID_ARGUMENT (a source missing, fields of another init); UNSUPPORTED (a random integer or bool). */
DISTAG_API distag_status distag_tensor_create_deferred(distag_dtype dtype, const int64_t *shape, size_t ndim,
                                                       const distag_deferred_options *options /* nullable */,
                                                       distag_tensor **out_tensor, distag_error *err);

/* Turns a tensor without history, in place, into a sharded one: id and requires_grad stay. source_rank -1: each member
 * has all of it, or it is deferred, and keeps its shard, nothing is sent; else the values of that member go to all, and
 * the others' tensors only tell dtype and shape. The same spec again changes nothing.
 * Collective. Blocks with a source, at most the timeout_ns of the mesh. Fails: INVALID_ARGUMENT (spec, rank; a sum in
 * the spec, which only from_local can give); INVALID_STATE (another spec, which distag_redistribute gives; a
 * history); as the source of a deferred one does, which ends the mesh. */
DISTAG_API distag_status distag_tensor_mark_sharding(distag_tensor *tensor, distag_mesh *mesh, const char *spec,
                                                     int32_t source_rank, distag_error *err);

enum distag_redistribute_flag {
  DISTAG_REDISTRIBUTE_GRADIENT = 1, /* the gradient is brought to `spec` too: an annotation of activations */
  DISTAG_REDISTRIBUTE_KEEP = 2      /* the gathered parameter stays until its backward, see keep_gathered */
};

/* The same values under another spec (without a sum that x does not have); recorded. As op "mark_sharding" of
 * distag_apply, with DISTAG_REDISTRIBUTE_GRADIENT, it takes plain attributes: the lists device_ids (the ranks) and
 * mesh_shape, the texts axis_names "('x', 'y')" and partition_spec. These are to describe the mesh of x.
 * Collective. Blocks. Fails: INVALID_ARGUMENT (spec; x is not sharded; as an op also counts of names or items that do
 * not fit); NOT_FOUND (as an op: x lies on no such mesh). */
DISTAG_API distag_status distag_redistribute(distag_tensor *x, const char *spec, uint32_t flags, distag_tensor **out_y,
                                             distag_error *err);

/* A sharded tensor of which `local` is this worker's shard, and the shard of a sharded tensor as a plain one: both
 * share memory and are recorded. shape (NULL, 0): the shape that the shards make up. gradient_spec says how the
 * gradients of the local tensors make up the whole one (NULL: cut like spec, repeated along the other axes): of a
 * repeated tensor of which only some members go on with their copy, or each in its own way, it is sum(axis). Copies of
 * to_local that get other gradients although repeated fail the pass with DIVERGED.
 * Both are collective; from_local blocks without a shape, at most the timeout_ns of the mesh, to_local sends nothing.
 * Fails: INVALID_ARGUMENT (shards that are not the boxes of spec, naming which member has which). */
DISTAG_API distag_status distag_tensor_from_local(distag_mesh *mesh, distag_tensor *local, const char *spec,
                                                  const int64_t *shape /* nullable */, size_t ndim,
                                                  const char *gradient_spec /* nullable */, distag_tensor **out_x,
                                                  distag_error *err);
DISTAG_API distag_status distag_tensor_to_local(distag_tensor *x, const char *gradient_spec /* nullable */,
                                                distag_tensor **out_local, distag_error *err);

/* The whole as a plain tensor without history, on the member of that rank (NULL elsewhere), or with -1 on all.
 * Collective. Blocks. Fails: as the mesh does; OUT_OF_MEMORY. The future's value is the tensor, or null. */
DISTAG_API distag_status distag_tensor_gather(distag_tensor *x, int32_t rank, int64_t timeout_ns,
                                              distag_tensor **out_y, distag_error *err);
DISTAG_API distag_status distag_tensor_gather_async(distag_tensor *x, int32_t rank, int64_t timeout_ns,
                                                    distag_future **out_future, distag_error *err);

/* How a tensor lies: its mesh or line, and its spec in the first notation. NULL for one that is not sharded. */
DISTAG_API distag_mesh *distag_tensor_get_mesh(distag_tensor *tensor);
DISTAG_API const char *distag_tensor_get_spec(distag_tensor *tensor);

/* ---- Passes of a mesh. Only the loss of a member in its last words of a joint pass can leave others with and without
 * gradients; the mesh has ended then, and says so. distag_optimizer_clip with sharded parameters is collective. ---- */

/* Makes a context that all members share: distag_backward on it is collective, each member gives its handles of the
 * same roots, all sharded (a partial root is summed), and either all members get the gradients of all their leaves, or
 * none does; a failure is the same on all. The pass runs on the thread that calls, hooks too. A
 * seed is sharded as its root, without its sum. Members may call other workers in it, each with its part
 * (distag_tensor_to_local); a pass that goes through such calls runs as that of an ordinary context does, and members
 * wait for it at most `timeout_ns` (0: that of the mesh). The context ends when all members have released it.
 * distag_backward_async and FAST are UNSUPPORTED here. In other contexts a root is not sharded.
 * Collective, without waiting. Fails: INVALID_ARGUMENT (a named line), or as the mesh does. */
DISTAG_API distag_status distag_context_create_joint(distag_mesh *mesh, distag_context **out_context,
                                                     distag_error *err);

/* ==== 18. Checkpoints =============================================================================== since 0.3 ====
 *
 * A directory with a safetensors file of each member, and index.json. Each part of a tensor is stored once.
 * ================================================================================================================== */

/* Saves a value without references and objects, often a map: tensors (of sharded ones each member its parts), lists,
 * maps, numbers, texts ..., alike on all members except the parts. It replaces what was saved there in one instant: a
 * load, also after a crash, finds the old or the new one, whole. The directory is made, its parent is not. Nothing may
 * write to the tensors meanwhile. timeout_ns 0: that of the mesh until all have come, then none. Saves and loads of a
 * mesh, or line, follow one another. Collective. Blocks. Fails: INVALID_ARGUMENT (references, objects, tensors of
 * another mesh, keys that give two tensors one name); INVALID_STATE (naming file and reason; a directory that not all
 * share; another save is writing there); DIVERGED (naming the entry that differs); as the mesh does. The old stays. */
DISTAG_API distag_status distag_checkpoint_save(distag_mesh *mesh, const char *directory, distag_value *value,
                                                int64_t timeout_ns, distag_error *err);
/* Saves the values of now while the program goes on and writes to the tensors. A shutdown waits for it; a failure for
 * which the future was not asked before its release goes to the log. Its value is null; to cancel it does nothing. */
DISTAG_API distag_status distag_checkpoint_save_async(distag_mesh *mesh, const char *directory, distag_value *value,
                                                      int64_t timeout_ns, distag_future **out_future,
                                                      distag_error *err);

/* Loads what was saved with any mesh and specs, and safetensors of others: a file, or a directory with one or with
 * model.safetensors.index.json. Tensors in `into`, a map as saved, get their elements in place, each member its parts;
 * readers of them wait. All is checked first: a failure leaves them as they were, unless a file cannot be read again,
 * as the message says: some may have new or damaged elements. out_value is all of it: what `into` lacks is deferred, to
 * mark or read. Without a mesh this process reads alone. Else collective. Blocks. Fails: NOT_FOUND (directory, entry);
 * PROTOCOL (damaged file, entry); INVALID_ARGUMENT (shape, dtype); INVALID_STATE; UNSUPPORTED (another dtype). */
DISTAG_API distag_status distag_checkpoint_load(distag_mesh *mesh /* nullable */, const char *directory,
                                                distag_value *into /* nullable */, int64_t timeout_ns,
                                                distag_value **out_value /* nullable */, distag_error *err);
/* Fills `into` before the future ends, whose value is out_value. Fails also: UNSUPPORTED without a mesh (no thread). */
DISTAG_API distag_status distag_checkpoint_load_async(distag_mesh *mesh /* nullable */, const char *directory,
                                                      distag_value *into /* nullable */, int64_t timeout_ns,
                                                      distag_future **out_future, distag_error *err);

/* ==== 19. Loaders =================================================================================== since 0.3 ====
 *
 * A loader makes batches ahead of the program, in the background, as sharded tensors. Each member has a source: host
 * code that reads rows of files, or wraps a reader. For data that other workers hold, call them from the source.
 * ================================================================================================================== */

enum distag_batch_mode {
  DISTAG_BATCH_GLOBAL = 1, /* each member's source gives the whole batch, which is cut there (default) */
  DISTAG_BATCH_LOCAL = 2,  /* each gives the part that it is to hold; the first dim may differ from batch to batch */
  DISTAG_BATCH_ROOT = 3,   /* the source of the member at position 0 gives it, the parts are sent */
  DISTAG_BATCH_ROWS = 4    /* the loader chooses the rows of each batch; each member is asked for those it is to hold */
};

/* Gives a batch: a tensor, or a list or map of tensors, none of them sharded; NULL at the end of the data. With
 * DISTAG_BATCH_ROWS it gives the rows with these numbers, `row_count` along the first dim, in this order, and is never
 * asked for none; in other modes `rows` is NULL. A batch may be wanted again, by a loader that goes on from a state.
 * Threads: the pool, as functions; up to `concurrency` at once, for different batches, in the order of their numbers
 * where that is 1. It may call anything but distag_loader_next and _next_async of its own loader (INVALID_STATE). */
typedef distag_status (*distag_batch_source)(void *user_data, uint64_t number, const int64_t *rows /* nullable */,
                                             size_t row_count, distag_value **out_batch, distag_error *err);

typedef struct distag_loader_options {
  uint32_t struct_size;
  uint32_t mode;            /* DISTAG_BATCH_... */
  uint32_t prefetch;        /* batches made ahead, at most 4,096; 0: 2 */
  uint32_t concurrency;     /* calls of the source at a time; capped at one fewer than the pool has threads; 0: 1 */
  const char *const *keys;  /* nullable: entries of the map, or one NULL key for any tensor ... */
  const char *const *specs; /* ... and their specs; nullable: the first axis cuts the first dim of every tensor */
  size_t spec_count;        /* an entry without a spec is repeated */
  int64_t row_count;        /* of the data. This and what follows, to drop_last: of DISTAG_BATCH_ROWS alone */
  int64_t batch_rows;       /* of a batch, over all members: 1 to 2^28 */
  int64_t epochs;           /* 0: 1; DISTAG_FOREVER */
  uint64_t seed;            /* of shuffle */
  uint32_t shuffle;         /* 1: each epoch has an order of its own, by the seed, the same on every mesh */
  uint32_t drop_last;       /* 1: without the batch of an epoch that has fewer rows */
  distag_value *state;      /* nullable: of distag_loader_save; go on with its next batch. Of every mode */
} distag_loader_options;
#define DISTAG_LOADER_OPTIONS_INIT {sizeof(distag_loader_options), 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, NULL}

/* Begins to make batches. Its tensors are of the mesh or line it is given. destroy runs when no call of the source can
 * follow. Batches are numbered from 0 through all epochs. prefetch and concurrency may differ from member to member.
 * Collective, without waiting. Fails: INVALID_ARGUMENT (specs, counts, fields of another mode; with DISTAG_BATCH_ROWS
 * first dims cut in two ways; a state of other data, naming the field; epochs may grow; a mesh without a worker). */
DISTAG_API distag_status distag_loader_create(distag_mesh *mesh, distag_batch_source source,
                                              void *user_data /* nullable */, distag_deleter destroy /* nullable */,
                                              const distag_loader_options *options /* nullable */,
                                              distag_loader **out_loader, distag_error *err);

/* The next batch, with its tensors sharded; NULL once the data of some member has ended, for all alike. All members
 * get the same batches; one that all have made is there at once. It is no collective call of the mesh's lines.
 * Blocks. Fails: as the source did on any member, naming it, and then the loader is at its end; likewise NOT_FOUND (a
 * key, listing those there are), INVALID_ARGUMENT (a batch unlike its spec or the parts of others), with check_replicas
 * DIVERGED; DEADLINE naming the member whose source is late: the batch is still to come; DISCONNECTED (a member has
 * released the loader); as the mesh does. The future's value: the batch, null at the end; to cancel it skips none. */
DISTAG_API distag_status distag_loader_next(distag_loader *loader, int64_t timeout_ns, distag_value **out_batch,
                                            distag_error *err);
DISTAG_API distag_status distag_loader_next_async(distag_loader *loader, int64_t timeout_ns,
                                                  distag_future **out_future, distag_error *err);

/* The state as a map of numbers, for a checkpoint: its next batch is the one that distag_loader_next would give,
 * however many are made ahead. A loader on any other mesh can go on from it. */
DISTAG_API distag_status distag_loader_save(distag_loader *loader, distag_value **out_state, distag_error *err);

/* The progress of a loader on this member. */
typedef struct distag_loader_info {
  uint32_t struct_size;
  uint32_t ready;    /* batches that wait for distag_loader_next */
  uint64_t next;     /* the number of the batch that comes next */
  int64_t count;     /* batches in all; -1: unknown, or no end */
  uint64_t dropped;  /* batches made here after the data of another member had ended */
  int64_t waited_ns; /* by distag_loader_next: near 0 where the loader keeps ahead */
  int64_t source_ns; /* in the source */
} distag_loader_info;
#define DISTAG_LOADER_INFO_INIT {sizeof(distag_loader_info), 0, 0, 0, 0, 0, 0}
DISTAG_API distag_status distag_loader_get_info(distag_loader *loader, distag_loader_info *out_info,
                                                distag_error *err);

/* ==== 20. Plans =================================================================================== since 0.3 ====
 *
 * A plan gives the leaves of a program specs, by rules, by what follows or by a search, and marks them in one exchange.
 * ================================================================================================================== */

enum distag_plan_mode {
  DISTAG_PLAN_COMPLETE = 1, /* a leaf without a rule gets the spec that follows for it with roots, or is repeated */
  DISTAG_PLAN_AUTO = 2      /* ... gets the spec with which a step of the roots takes the least time; needs roots */
};

typedef struct distag_plan_options {
  uint32_t struct_size;
  uint32_t mode;               /* DISTAG_PLAN_...; 0: AUTO with roots if DISTAG_AUTO_SPMD is 1, else COMPLETE */
  uint32_t inference;          /* 1: no gradients and no optimizer, in memory and time */
  uint32_t optimizer_copies;   /* tensors that the optimizer keeps of each parameter: 2 for adam */
  uint64_t memory_bytes;       /* that a member has; 0: no limit */
  int64_t timeout_ns;          /* of AUTO; 0: none */
  int64_t source;              /* the position of the member whose values plain leaves get; -1: each has all of them */
  const char *const *names;    /* of the leaves, each once: "layers.0.weight" */
  distag_tensor *const *leaves;
  size_t leaf_count;           /* at most 1,048,576, and so is rule_count */
  const char *const *patterns; /* a leaf whose name fits (* within dots, ** across, ? one character) ... */
  const char *const *specs;    /* ... has this spec; the first that fits counts */
  size_t rule_count;
  const char *saved;           /* nullable: the report of a former plan, in the place of rules; without roots too */
  const char *costs;           /* nullable; of AUTO: {"alpha": s, "beta": s/byte, "rate": flop/s, "outer", "axes"} */
} distag_plan_options;
#define DISTAG_PLAN_OPTIONS_INIT \
  {sizeof(distag_plan_options), 0, 0, 0, 0, 0, 0, NULL, NULL, 0, NULL, NULL, 0, NULL, NULL}

/* Makes a plan from rules, and, with roots, for the program of which they are results: run it once with inputs of
 * DISTAG_INIT_SHAPE. A leaf without a rule gets the cuts that its ops want and that move nothing, else is repeated;
 * with AUTO those of the least time of a step, backward included, in memory_bytes. Inputs without a name are repeated,
 * and marked leaves stay. Equal arguments give equal plans anywhere. Nothing is sent. The leaves are retained.
 * Fails: INVALID_ARGUMENT (a rule that fits no leaf, naming the nearest, or does not suit it; roots with elements, or
 * of no leaf; saved is no report, or of another mesh, program or leaves; costs); OUT_OF_MEMORY (bytes); DEADLINE. */
DISTAG_API distag_status distag_plan_create(distag_mesh *mesh, distag_tensor *const *roots /* nullable */,
                                            size_t root_count, const distag_plan_options *options /* nullable */,
                                            distag_plan **out_plan, distag_error *err);

/* Marks the leaves as planned, in place: plain ones get the values of the source, in exchanges of up to 64 MiB
 * (DISTAG_AUTO_USE_GROUP_SHARDING=0: one by one), deferred ones make their part. Those that lie so, and shapes, stay.
 * Collective: members compare their plans first. Blocks, at most the timeout_ns of the mesh. Fails, no leaf marked:
 * DIVERGED; INVALID_STATE (a leaf with another spec, or a history); as the source of a deferred leaf on one member
 * does, on all. Values that do not come end the mesh. */
DISTAG_API distag_status distag_plan_apply(distag_plan *plan, distag_mesh *line, distag_error *err);

/* The spec of the leaf of that name; NULL: there is no such leaf. */
DISTAG_API const char *distag_plan_get_spec(distag_plan *plan, const char *name);

/* In JSON, as distag_worker_copy_report: "mesh", "mode", "memory" of the member that needs most, and "leaves", each
 * with "name", "dtype", "shape", "spec" and "why"; with roots also "program", a hash, and "ops" likewise; with AUTO
 * "seconds", "bound" that no choice beats, "costs", "activations", "step": its collectives, bytes of who made it. */
DISTAG_API distag_status distag_plan_copy_report(distag_plan *plan, char *buffer /* nullable with capacity 0 */,
                                                 size_t capacity, size_t *out_size, distag_error *err);

/* ==== 21. The function table ======================================================================== since 0.1 ====
 *
 * For hosts that load the library themselves: one symbol, distag_get_api, gives every function. A slot is named like
 * its function without "distag_", an op with "op_" before it, and has the same type. The slots of a release are
 * frozen and never NULL; new ones follow at the end, so a host asks DISTAG_API_HAS for those that came later than the
 * oldest library it accepts.
 * ================================================================================================================== */

/* Ops that look alike share a type. */
typedef distag_status (*distag_unary_op)(distag_tensor *x, distag_tensor **out_y, distag_error *err);
typedef distag_status (*distag_binary_op)(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);
typedef distag_status (*distag_scalar_op)(distag_tensor *x, double s, distag_tensor **out_y, distag_error *err);
typedef distag_status (*distag_dim_op)(distag_tensor *x, int64_t dim, distag_tensor **out_y, distag_error *err);
typedef distag_status (*distag_reduce_op)(distag_tensor *x, const int64_t *dims, size_t dim_count, int32_t keepdim,
                                          distag_tensor **out_y, distag_error *err);
typedef distag_status (*distag_fill_op)(distag_dtype dtype, const int64_t *shape, size_t ndim, distag_tensor **out_y,
                                        distag_error *err);
typedef distag_status (*distag_random_op)(uint64_t seed, distag_dtype dtype, const int64_t *shape, size_t ndim,
                                          distag_tensor **out_y, distag_error *err);

typedef struct distag_api {
  uint32_t struct_size;
  uint32_t abi_major;

  /* 0.1: library, errors */
  const char *(*get_version)(void);
  uint64_t (*get_handle_count)(void);
  const char *(*status_get_name)(distag_status);
  distag_status (*error_set)(distag_error *, distag_status, const char *);
  /* references */
  void (*tensor_retain)(distag_tensor *); void (*tensor_release)(distag_tensor *);
  void (*value_retain)(distag_value *); void (*value_release)(distag_value *);
  void (*worker_retain)(distag_worker *); void (*worker_release)(distag_worker *);
  void (*reply_retain)(distag_reply *); void (*reply_release)(distag_reply *);
  void (*future_retain)(distag_future *); void (*future_release)(distag_future *);
  void (*context_retain)(distag_context *); void (*context_release)(distag_context *);
  void (*gradients_retain)(distag_gradients *); void (*gradients_release)(distag_gradients *);
  /* tensors */
  size_t (*dtype_get_size)(distag_dtype);
  distag_status (*tensor_create)(const void *, size_t, distag_dtype, const int64_t *, size_t, distag_tensor **,
                                 distag_error *);
  distag_status (*tensor_create_borrowed)(const void *, size_t, distag_dtype, const int64_t *, const int64_t *, size_t,
                                          void *, distag_deleter, distag_tensor **, distag_error *);
  distag_dtype (*tensor_get_dtype)(distag_tensor *); size_t (*tensor_get_ndim)(distag_tensor *);
  const int64_t *(*tensor_get_shape)(distag_tensor *); const int64_t *(*tensor_get_strides)(distag_tensor *);
  size_t (*tensor_get_count)(distag_tensor *); size_t (*tensor_get_size)(distag_tensor *);
  uint64_t (*tensor_get_id)(distag_tensor *); const void *(*tensor_get_data)(distag_tensor *);
  distag_status (*tensor_copy_data)(distag_tensor *, void *, size_t, distag_error *);
  distag_status (*tensor_get_item)(distag_tensor *, double *, distag_error *);
  distag_status (*tensor_set_requires_grad)(distag_tensor *, int32_t, distag_error *);
  int32_t (*tensor_get_requires_grad)(distag_tensor *);
  distag_status (*tensor_write)(distag_tensor *, const void *, size_t, distag_error *);
  distag_status (*tensor_assign)(distag_tensor *, distag_tensor *, distag_error *);
  distag_status (*tensor_add_scaled)(distag_tensor *, distag_tensor *, double, distag_error *);
  /* ops */
  distag_fill_op op_zeros, op_ones;
  distag_random_op op_rand, op_randn;
  distag_binary_op op_add, op_sub, op_mul, op_div, op_maximum, op_eq, op_matmul, op_cross_entropy, op_mse_loss;
  distag_scalar_op op_add_scalar, op_mul_scalar;
  distag_unary_op op_neg, op_exp, op_log, op_sqrt, op_tanh, op_sigmoid, op_relu, op_clone, op_detach;
  distag_reduce_op op_sum, op_mean, op_max;
  distag_dim_op op_argmax, op_softmax, op_log_softmax;
  distag_status (*op_full)(double, distag_dtype, const int64_t *, size_t, distag_tensor **, distag_error *);
  distag_status (*op_arange)(double, double, double, distag_dtype, distag_tensor **, distag_error *);
  distag_status (*op_linear)(distag_tensor *, distag_tensor *, distag_tensor *, distag_tensor **, distag_error *);
  distag_status (*op_transpose)(distag_tensor *, int64_t, int64_t, distag_tensor **, distag_error *);
  distag_status (*op_reshape)(distag_tensor *, const int64_t *, size_t, distag_tensor **, distag_error *);
  distag_status (*op_slice)(distag_tensor *, int64_t, int64_t, int64_t, int64_t, distag_tensor **, distag_error *);
  distag_status (*op_concat)(distag_tensor *const *, size_t, int64_t, distag_tensor **, distag_error *);
  distag_status (*op_conv2d)(distag_tensor *, distag_tensor *, distag_tensor *, const int64_t *, const int64_t *,
                             distag_tensor **, distag_error *);
  distag_status (*op_max_pool2d)(distag_tensor *, const int64_t *, const int64_t *, const int64_t *, distag_tensor **,
                                 distag_error *);
  distag_status (*op_cast)(distag_tensor *, distag_dtype, distag_tensor **, distag_error *);
  distag_status (*apply)(const char *, distag_tensor *const *, size_t, distag_value *, uint32_t, distag_tensor **,
                         size_t, distag_error *);
  distag_status (*apply_custom)(const distag_custom_op *, distag_tensor *const *, size_t, distag_tensor **, size_t,
                                distag_error *);
  size_t (*get_op_count)(void); distag_status (*get_op)(size_t, distag_op_info *, distag_error *);
  /* values */
  distag_status (*value_create_null)(distag_value **, distag_error *);
  distag_status (*value_create_bool)(int32_t, distag_value **, distag_error *);
  distag_status (*value_create_int64)(int64_t, distag_value **, distag_error *);
  distag_status (*value_create_float64)(double, distag_value **, distag_error *);
  distag_status (*value_create_text)(const char *, distag_value **, distag_error *);
  distag_status (*value_create_bytes)(const void *, size_t, distag_value **, distag_error *);
  distag_status (*value_create_list)(distag_value *const *, size_t, distag_value **, distag_error *);
  distag_status (*value_create_int64_list)(const int64_t *, size_t, distag_value **, distag_error *);
  distag_status (*value_create_map)(const char *const *, distag_value *const *, size_t, distag_value **,
                                    distag_error *);
  distag_value *(*tensor_as_value)(distag_tensor *); distag_value_kind (*value_get_kind)(distag_value *);
  size_t (*value_get_count)(distag_value *); distag_value *(*value_get_item)(distag_value *, size_t);
  const char *(*value_get_key)(distag_value *, size_t); distag_value *(*value_get_entry)(distag_value *, const char *);
  distag_status (*value_get_bool)(distag_value *, int32_t *, distag_error *);
  distag_status (*value_get_int64)(distag_value *, int64_t *, distag_error *);
  distag_status (*value_get_float64)(distag_value *, double *, distag_error *);
  distag_status (*value_get_text)(distag_value *, const char **, distag_error *);
  distag_status (*value_get_bytes)(distag_value *, const void **, size_t *, distag_error *);
  distag_status (*value_get_tensor)(distag_value *, distag_tensor **, distag_error *);
  /* workers */
  distag_status (*worker_create)(const distag_worker_options *, distag_worker **, distag_error *);
  distag_status (*worker_register)(distag_worker *, const char *, distag_function, void *, distag_deleter,
                                   const distag_function_options *, distag_error *);
  distag_status (*worker_start)(distag_worker *, int64_t, distag_error *);
  distag_status (*worker_start_async)(distag_worker *, int64_t, distag_future **, distag_error *);
  distag_status (*worker_shutdown)(distag_worker *, int64_t, distag_value **, distag_error *);
  distag_status (*worker_shutdown_async)(distag_worker *, int64_t, distag_future **, distag_error *);
  distag_status (*worker_poll)(distag_worker *, size_t, int64_t, size_t *, distag_error *);
  int64_t (*worker_get_fd)(distag_worker *); const char *(*worker_get_name)(distag_worker *);
  int32_t (*worker_get_rank)(distag_worker *); int32_t (*worker_get_world_size)(distag_worker *);
  distag_status (*worker_get_stats)(distag_worker *, distag_stats *, distag_error *);
  /* functions */
  distag_worker *(*invocation_get_worker)(distag_invocation *);
  distag_context *(*invocation_get_context)(distag_invocation *);
  const char *(*invocation_get_caller)(distag_invocation *); size_t (*invocation_get_arg_count)(distag_invocation *);
  distag_value *(*invocation_get_arg)(distag_invocation *, size_t);
  int64_t (*invocation_get_time_left)(distag_invocation *); int32_t (*invocation_is_cancelled)(distag_invocation *);
  distag_status (*invocation_get_tensor)(distag_invocation *, size_t, distag_tensor **, distag_error *);
  distag_status (*invocation_return)(distag_invocation *, distag_value *, distag_error *);
  distag_status (*invocation_defer)(distag_invocation *, distag_reply **, distag_error *);
  distag_status (*reply_finish)(distag_reply *, distag_value *, const distag_error *, distag_error *);
  int32_t (*reply_is_cancelled)(distag_reply *);
  /* calls and futures */
  distag_status (*call)(distag_worker *, distag_context *, const char *, const char *, distag_value *const *, size_t,
                        const distag_call_options *, distag_value **, distag_error *);
  distag_status (*call_async)(distag_worker *, distag_context *, const char *, const char *, distag_value *const *,
                              size_t, const distag_call_options *, distag_future **, distag_error *);
  int32_t (*future_poll)(distag_future *); distag_status (*future_wait)(distag_future *, int64_t, distag_error *);
  distag_status (*future_get_value)(distag_future *, distag_value **, distag_error *);
  void (*future_cancel)(distag_future *);
  distag_status (*future_on_done)(distag_future *, distag_future_callback, void *, distag_deleter, distag_error *);
  distag_status (*wait_all)(distag_future *const *, size_t, int64_t, distag_error *);
  /* contexts and the backward pass */
  distag_status (*context_create)(distag_worker *, distag_context **, distag_error *);
  uint64_t (*context_get_id)(distag_context *);
  distag_status (*context_get_info)(distag_context *, distag_context_info *, distag_error *);
  distag_status (*context_copy_known_ranks)(distag_context *, int32_t *, size_t, size_t *, distag_error *);
  distag_status (*backward)(distag_context *, distag_tensor *const *, size_t, const distag_backward_options *,
                            distag_error *);
  distag_status (*backward_async)(distag_context *, distag_tensor *const *, size_t, const distag_backward_options *,
                                  distag_future **, distag_error *);
  distag_status (*get_gradients)(distag_context *, distag_gradients **, distag_error *);
  size_t (*gradients_get_count)(distag_gradients *); distag_tensor *(*gradients_get_tensor)(distag_gradients *, size_t);
  distag_tensor *(*gradients_get_gradient)(distag_gradients *, size_t);
  distag_tensor *(*gradients_find)(distag_gradients *, distag_tensor *);

  /* 0.2: optimizers */
  void (*optimizer_retain)(distag_optimizer *); void (*optimizer_release)(distag_optimizer *);
  distag_status (*optimizer_create)(distag_worker *, const char *, distag_value *const *, size_t, distag_optimizer **,
                                    distag_error *);
  distag_status (*optimizer_set)(distag_optimizer *, const char *, double, distag_error *);
  distag_status (*optimizer_step)(distag_optimizer *, distag_context *, const distag_call_options *, distag_error *);
  distag_status (*optimizer_step_async)(distag_optimizer *, distag_context *, const distag_call_options *,
                                        distag_future **, distag_error *);
  distag_status (*optimizer_copy_stepped_ranks)(distag_optimizer *, int32_t *, size_t, size_t *, distag_error *);
  distag_status (*optimizer_clip)(distag_optimizer *, distag_context *, double, const distag_call_options *, double *,
                                  distag_error *);
  distag_status (*optimizer_save)(distag_optimizer *, const distag_call_options *, distag_value **, distag_error *);
  distag_status (*optimizer_load)(distag_optimizer *, distag_value *, const distag_call_options *, distag_error *);
  /* 0.2: futures */
  distag_status (*future_then)(distag_future *, distag_future_continuation, void *, distag_deleter, distag_future **,
                               distag_error *);
  /* 0.2: members and functions */
  distag_status (*worker_all_gather)(distag_worker *, distag_value *, const int32_t *, size_t, int64_t, distag_value **,
                                     distag_error *);
  distag_status (*worker_unregister)(distag_worker *, const char *, int64_t, distag_error *);
  distag_status (*worker_get_member)(distag_worker *, int32_t, distag_member *, distag_error *);
  distag_status (*worker_get_member_by_name)(distag_worker *, const char *, distag_member *, distag_error *);
  distag_status (*worker_copy_ranks)(distag_worker *, const char *, int32_t *, size_t, size_t *, distag_error *);
  void (*rref_retain)(distag_rref *); void (*rref_release)(distag_rref *);
  distag_status (*value_create_object)(const char *, void *, distag_deleter, distag_value **, distag_error *);
  distag_value *(*rref_as_value)(distag_rref *);
  distag_status (*value_get_rref)(distag_value *, distag_rref **, distag_error *);
  distag_status (*value_get_object)(distag_value *, const char *, void **, distag_error *);
  distag_status (*invocation_get_object)(distag_invocation *, size_t, const char *, void **, distag_error *);
  distag_status (*rref_create)(distag_worker *, distag_value *, distag_rref **, distag_error *);
  distag_status (*remote)(distag_worker *, distag_context *, const char *, const char *, distag_value *const *, size_t,
                          const distag_call_options *, distag_rref **, distag_error *);
  distag_status (*rref_fetch)(distag_rref *, distag_context *, const distag_call_options *, distag_value **,
                              distag_error *);
  distag_status (*rref_fetch_async)(distag_rref *, distag_context *, const distag_call_options *, distag_future **,
                                    distag_error *);
  distag_status (*rref_get_local)(distag_rref *, distag_value **, distag_error *);
  const char *(*rref_get_owner)(distag_rref *); int32_t (*rref_is_owner)(distag_rref *);
  int32_t (*rref_is_confirmed)(distag_rref *); uint64_t (*rref_get_id)(distag_rref *);
  /* 0.2: reports */
  distag_status (*worker_copy_report)(distag_worker *, char *, size_t, size_t *, distag_error *);
  distag_status (*context_copy_report)(distag_context *, char *, size_t, size_t *, distag_error *);
  /* 0.2: hooks */
  distag_status (*tensor_add_hook)(distag_tensor *, distag_tensor_hook, void *, distag_deleter, uint64_t *,
                                   distag_error *);
  distag_status (*tensor_remove_hook)(distag_tensor *, uint64_t, distag_error *);

  /* 0.3 */
  uint64_t (*get_misuse_count)(void);
  distag_status (*tensor_get_info)(distag_tensor *, distag_tensor_info *, distag_error *);
  distag_status (*tensor_create_snapshot)(distag_tensor *, distag_tensor **, distag_error *);
  distag_status (*tensor_export_dlpack)(distag_tensor *, uint32_t, struct DLManagedTensorVersioned **, distag_error *);
  distag_status (*tensor_export_dlpack_legacy)(distag_tensor *, uint32_t, struct DLManagedTensor **, distag_error *);
  distag_status (*tensor_import_dlpack)(struct DLManagedTensorVersioned *, distag_tensor **, distag_error *);
  distag_status (*tensor_import_dlpack_legacy)(struct DLManagedTensor *, distag_tensor **, distag_error *);
  distag_status (*value_create_float64_list)(const double *, size_t, distag_value **, distag_error *);
  distag_status (*value_copy_int64s)(distag_value *, int64_t *, size_t, size_t *, distag_error *);
  distag_status (*value_copy_float64s)(distag_value *, double *, size_t, size_t *, distag_error *);
  distag_status (*context_settle_async)(distag_context *, distag_future **, distag_error *);
  distag_status (*worker_all_gather_async)(distag_worker *, distag_value *, const int32_t *, size_t, int64_t,
                                           distag_future **, distag_error *);
  distag_status (*optimizer_clip_async)(distag_optimizer *, distag_context *, double, const distag_call_options *,
                                        distag_future **, distag_error *);
  distag_status (*optimizer_save_async)(distag_optimizer *, const distag_call_options *, distag_future **,
                                        distag_error *);
  distag_status (*optimizer_load_async)(distag_optimizer *, distag_value *, const distag_call_options *,
                                        distag_future **, distag_error *);
  distag_status (*worker_wait)(distag_worker *, int64_t, distag_error *);
  distag_status (*worker_offer)(distag_worker *, const char *, uint64_t, const distag_function_options *,
                                distag_error *);
  distag_status (*future_post)(distag_future *, distag_worker *, uint64_t, distag_error *);
  distag_status (*worker_take_event)(distag_worker *, int64_t, distag_event *, distag_error *);
  distag_status (*invocation_finish)(distag_invocation *, distag_value *, const distag_error *, distag_error *);
  const char *(*invocation_get_function)(distag_invocation *);
  distag_status (*copy_handle_report)(char *, size_t, size_t *, distag_error *);
  /* 0.3: meshes */
  void (*mesh_retain)(distag_mesh *); void (*mesh_release)(distag_mesh *);
  distag_status (*mesh_create)(distag_worker *, const int32_t *, size_t, const int64_t *, const char *const *, size_t,
                               const distag_mesh_options *, distag_mesh **, distag_error *);
  distag_status (*mesh_create_async)(distag_worker *, const int32_t *, size_t, const int64_t *, const char *const *,
                                     size_t, const distag_mesh_options *, distag_mesh **, distag_future **,
                                     distag_error *);
  distag_status (*mesh_get_info)(distag_mesh *, distag_mesh_info *, distag_error *);
  distag_status (*mesh_open_line)(distag_mesh *, const char *, distag_mesh **, distag_error *);
  distag_status (*mesh_get_stats)(distag_mesh *, distag_mesh_stats *, distag_error *);
  distag_status (*mesh_copy_report)(distag_mesh *, char *, size_t, size_t *, distag_error *);
  distag_status (*mesh_copy_box)(distag_mesh *, const char *, const int64_t *, size_t, int64_t, int64_t *, int64_t *,
                                 int64_t *, distag_error *);
  distag_status (*mesh_copy_spec)(distag_mesh *, const char *, size_t, uint32_t, char *, size_t, size_t *,
                                  distag_error *);
  distag_status (*visualize_sharding)(distag_mesh *, const char *, const int64_t *, size_t,
                                      const distag_picture_options *, char *, size_t, size_t *, distag_error *);
  distag_status (*collective)(distag_mesh *, uint32_t, const char *, distag_tensor *,
                              const distag_collective_options *, distag_tensor **, distag_error *);
  distag_status (*collective_async)(distag_mesh *, uint32_t, const char *, distag_tensor *,
                                    const distag_collective_options *, distag_future **, distag_error *);
  /* 0.3: sharded tensors */
  distag_status (*tensor_mark_sharding)(distag_tensor *, distag_mesh *, const char *, int32_t, distag_error *);
  distag_status (*redistribute)(distag_tensor *, const char *, uint32_t, distag_tensor **, distag_error *);
  distag_status (*tensor_from_local)(distag_mesh *, distag_tensor *, const char *, const int64_t *, size_t,
                                     const char *, distag_tensor **, distag_error *);
  distag_status (*tensor_to_local)(distag_tensor *, const char *, distag_tensor **, distag_error *);
  distag_status (*tensor_gather)(distag_tensor *, int32_t, int64_t, distag_tensor **, distag_error *);
  distag_status (*tensor_gather_async)(distag_tensor *, int32_t, int64_t, distag_future **, distag_error *);
  distag_mesh *(*tensor_get_mesh)(distag_tensor *); const char *(*tensor_get_spec)(distag_tensor *);
  distag_status (*context_create_joint)(distag_mesh *, distag_context **, distag_error *);
  distag_status (*tensor_create_deferred)(distag_dtype, const int64_t *, size_t, const distag_deferred_options *,
                                          distag_tensor **, distag_error *);
  /* 0.3: keys */
  distag_status (*security_create_keys)(distag_key_pair *, distag_error *);
  distag_status (*worker_set_peers)(distag_worker *, const char *const *, const char *const *, size_t,
                                    distag_error *);
  distag_status (*checkpoint_save)(distag_mesh *, const char *, distag_value *, int64_t, distag_error *);
  distag_status (*checkpoint_load)(distag_mesh *, const char *, distag_value *, int64_t, distag_value **,
                                   distag_error *);
  distag_status (*get_environment)(distag_environment *, distag_error *);
  distag_status (*worker_copy_metrics)(distag_worker *, char *, size_t, size_t *, distag_error *);
  distag_status (*worker_start_trace)(distag_worker *, const distag_trace_options *, distag_error *);
  distag_status (*worker_stop_trace)(distag_worker *, distag_error *);
  distag_status (*trace_begin)(distag_worker *, const char *, uint64_t *, distag_error *);
  void (*trace_end)(distag_worker *, uint64_t);
  /* 0.3: loaders */
  void (*loader_retain)(distag_loader *); void (*loader_release)(distag_loader *);
  distag_status (*loader_create)(distag_mesh *, distag_batch_source, void *, distag_deleter,
                                 const distag_loader_options *, distag_loader **, distag_error *);
  distag_status (*loader_next)(distag_loader *, int64_t, distag_value **, distag_error *);
  distag_status (*loader_next_async)(distag_loader *, int64_t, distag_future **, distag_error *);
  distag_status (*loader_save)(distag_loader *, distag_value **, distag_error *);
  distag_status (*loader_get_info)(distag_loader *, distag_loader_info *, distag_error *);
  distag_status (*checkpoint_save_async)(distag_mesh *, const char *, distag_value *, int64_t, distag_future **,
                                         distag_error *);
  distag_status (*checkpoint_load_async)(distag_mesh *, const char *, distag_value *, int64_t, distag_future **,
                                         distag_error *);
  distag_status (*worker_copy_group_report)(distag_worker *, int64_t, char *, size_t, size_t *, distag_error *);
  /* 0.3: plans */
  void (*plan_retain)(distag_plan *); void (*plan_release)(distag_plan *);
  distag_status (*plan_create)(distag_mesh *, distag_tensor *const *, size_t, const distag_plan_options *,
                               distag_plan **, distag_error *);
  distag_status (*plan_apply)(distag_plan *, distag_mesh *, distag_error *);
  const char *(*plan_get_spec)(distag_plan *, const char *);
  distag_status (*plan_copy_report)(distag_plan *, char *, size_t, size_t *, distag_error *);
  const char *(*invocation_get_traceparent)(distag_invocation *);
} distag_api;

/* 1 if the loaded library has this slot: DISTAG_API_HAS(api, worker_poll). */
#define DISTAG_API_HAS(api, slot) ((api)->struct_size >= offsetof(distag_api, slot) + sizeof((api)->slot))

/* The table for an ABI major (give DISTAG_ABI_MAJOR), as long as the library is loaded; NULL: it does not serve it. */
DISTAG_API const distag_api *distag_get_api(uint32_t abi_major);

/* ==== 22. Limits ==================================================================================== since 0.1 ====
 *
 * Beyond them a call fails and says so; nothing is lost.
 *
 *   names of workers, jobs and functions; labels    127 bytes
 *   addresses                                       1,024 bytes; the path of an "ipc://" one 107
 *   ranks of a group, each kept for its name        65,536
 *   dims of a tensor                                16
 *   lists and maps within each other                16
 *   a call with its arguments, an answer            max_message_bytes of its receiver; 64 MiB of it for
 *                                                   descriptions of values: about 20 bytes for a number in a list
 *                                                   (0 where all are int64), 40 for a tensor, a text or an entry of a
 *                                                   map, 80 for a reference
 *   contexts of one worker that another holds       65,536; passes of one in which another takes part 4,096
 *   calls of one worker that another has open       262,144
 *   calls and answers of a context whose tensors
 *   require grad; references to values of one
 *   worker that another holds                       1,048,576
 *   all_gathers under way                           512 sets of ranks, 4,096 of one set
 *   parts of a mesh that wait for a member          1 GiB, else the mesh ends: members may be so far ahead
 *   optimizers whose parameters one worker owns     65,536
 *   threads of a pool, with those that wait         256
 *   text of an error                                495 bytes, cut between characters
 * ================================================================================================================== */

#ifdef __cplusplus
}
#endif

#endif /* DISTAG_H */
