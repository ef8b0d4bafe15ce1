"""Plants violations into a copy of distag.h and expects each to be found. usage: self_test.py distag.h"""
import os
import sys

import check_conventions
import check_frozen

# A text, its replacement, and a part of the complaint that must come.
VIOLATIONS = [
    ("#include <stddef.h>", "#include <stddef.h>\n#include <stdio.h>", "includes"),
    ("  uint64_t (*get_handle_count)(void);\n", "", "no slot"),
    ("DISTAG_API uint64_t distag_get_handle_count(void);\n", "", "is not declared"),
    ("distag_status distag_neg(distag_tensor *x, distag_tensor **out_y, distag_error *err)",
     "distag_status distag_neg(distag_tensor *x, distag_tensor **out_y)", "last parameter"),
    ("distag_status distag_neg(distag_tensor *x, distag_tensor **out_y, distag_error *err)",
     "distag_status distag_neg(distag_tensor **out_y, distag_tensor *x, distag_error *err)", "must come last"),
    ("distag_status distag_neg(distag_tensor *x", "distag_status distag_neg(const distag_tensor *x", "never const"),
    ("distag_tensor_get_id(distag_tensor *tensor);", "distag_tensor_get_id(distag_tensor *tensor, int flag);",
     "fixed width"),
    ("#define DISTAG_STATS_INIT", "#define DISTAG_STATS_BEGIN", "DISTAG_STATS_INIT is missing"),
    ("DISTAG_LOG_DEBUG = 4", "DISTAG_LOG_DEBUG", "explicit value"),
    ("typedef struct distag_stats {\n  uint32_t struct_size;", "typedef struct distag_stats {", "struct_size"),
    ("distag_worker_release(distag_worker *worker /* nullable */)", "distag_worker_release(distag_worker *worker)",
     "takes NULL"),
    (" /* nullable: nothing is logged */", " /* nullable: nothing is logged */" + " " * 80, "columns"),
    ("DISTAG_API void distag_rref_release(distag_rref *rref /* nullable */);\n", "", "distag_rref: a handle has release"),
    ("/* one incoming call, of a function or taken. lent */", "/* one incoming call. immutable */", "a handle has retain"),
    ("distag_tensor *distag_gradients_find(", "distag_tensor *distag_gradients_copy(", "named get, find or as"),
    ("distag_get_gradients(distag_context *context, distag_gradients **out_gradients",
     "distag_context_get_gradients(const char *context, distag_gradients **out_gradients", "that lends"),
    ("null where the operation has none; lent by the future.", "null where the operation has none; a new reference.",
     "lends by its name"),
    ("/* Takes a snapshot of the gradients", "/* Lent by the context, which lends a snapshot of the gradients",
     "gives by its name"),
    ("distag_value_get_tensor(distag_value *value", "distag_get_tensor(distag_value *value", "name the handle type"),
    ("The snapshot is the caller's", "The snapshot is a copy", "convention 2 must say so"),
    ("distag_get_gradients, which names no noun, gives", "all others give", "convention 2 must say so"),
    ("distag_rref **out_rref, distag_error *err);", "distag_rref **out_rref /* take */, distag_error *err);",
     "cannot be taken"),
    (" *   6. Values  ", " *   6. Valuables  ", "the contents are not the sections"),
    ("/* Calls a function of the worker named", "/* " + "word " * 150 + "Calls a function of the worker named", "more than 150"),
]

# The same for what released versions had.
FROZEN_VIOLATIONS = [
    # two slots swapped
    ("void (*tensor_retain)(distag_tensor *); void (*tensor_release)(distag_tensor *);",
     "void (*tensor_release)(distag_tensor *); void (*tensor_retain)(distag_tensor *);", "tensor_retain"),
    ("op_neg, op_exp", "op_exp, op_neg", "op_neg"),
    # one between
    ("  uint64_t (*get_handle_count)(void);", "  uint64_t (*get_handle_count)(void);\n  void (*halt)(void);", "slot"),
    ("  distag_status (*tensor_remove_hook)", "  void (*halt)(void);\n  distag_status (*tensor_remove_hook)",
     "tensor_remove_hook"),
    # one gone
    ("  int32_t (*future_poll)(distag_future *);", " ", "future_poll"),
    # types changed: of a slot, a shared slot type, a callback, a function, a member
    ("  int32_t (*future_poll)(distag_future *);", "  int64_t (*future_poll)(distag_future *);", "future_poll"),
    ("typedef distag_status (*distag_unary_op)(distag_tensor *x,",
     "typedef distag_status (*distag_unary_op)(distag_value *x,", "distag_unary_op"),
    ("typedef void (*distag_deleter)(void *user_data);", "typedef int32_t (*distag_deleter)(void *user_data);",
     "distag_deleter"),
    ("DISTAG_API int32_t distag_future_poll(", "DISTAG_API int64_t distag_future_poll(", "distag_future_poll"),
    ("typedef int32_t distag_status;", "typedef int64_t distag_status;", "distag_status"),
    ("  uint64_t peers_lost;", "  int64_t peers_lost;", "peers_lost"),
    ("  char name[128];", "  char name[256];", "distag_member"),
    # members swapped, one gone, one between
    ("  uint64_t calls_made, calls_served, ", "  uint64_t calls_served, calls_made, ", "distag_stats"),
    ("  uint64_t passes_run, passes_failed;\n", "", "distag_stats"),
    ("  uint32_t thread_count; ", "  uint32_t spare;\n  uint32_t thread_count; ", "distag_worker_options"),
    # enumerators and constants: renumbered, gone
    ("DISTAG_E_REMOTE = 60", "DISTAG_E_REMOTE = 65", "DISTAG_E_REMOTE"),
    ("  DISTAG_LOG_INFO = 3,\n", "", "DISTAG_LOG_INFO"),
    ("DISTAG_SECOND 1000000000LL", "DISTAG_SECOND 1000LL", "DISTAG_SECOND"),
    # a type that got a name is another one
    ("typedef uint32_t distag_executor_type;", "typedef uint64_t distag_executor_type;", "executor"),
    ("typedef void *(*distag_allocate)(void *user_data, size_t size,", "typedef void *(*distag_allocate)(void *user_data,",
     "distag_allocator"),
]


def plant(text, violations, check):
    failures = 0
    for old, new, expected in violations:
        if old not in text:
            print(f"the header has no longer: {old!r}")
            failures += 1
            continue
        complaints = list(check(text.replace(old, new, 1)))
        if not any(expected in complaint for complaint in complaints):
            print(f"not found: {new!r}: expected a complaint with {expected!r}, got {complaints}")
            failures += 1
    print(f"{len(violations)} planted, {failures} not found")
    return failures


def main():
    text = check_frozen.read(sys.argv[1])
    frozen = check_frozen.read(os.path.join(os.path.dirname(__file__), "slots-0.2.txt")).splitlines()
    failures = plant(text, VIOLATIONS, check_conventions.check)
    failures += plant(text, FROZEN_VIOLATIONS, lambda planted: check_frozen.check(planted, frozen))
    # A lending function that no test walks.
    if not any("distag_rref_get_local" in complaint for complaint in check_conventions.check_walk(text, "")):
        print("not found: that distag_rref_get_local is walked by no test")
        failures += 1
    # Appending is no violation.
    appended = text.replace("} distag_api;", "  void (*halt)(void);\n} distag_api;", 1)
    failures += len(list(check_frozen.check(appended, frozen)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
