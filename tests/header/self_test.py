"""Plants violations into a copy of distag.h and expects each to be found. usage: self_test.py distag.h"""
import sys

import check_conventions

# What is replaced, by what, and a part of the complaint that must come.
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
]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    failures = 0
    for old, new, expected in VIOLATIONS:
        if old not in text:
            print(f"the header has no longer: {old!r}")
            failures += 1
            continue
        complaints = check_conventions.check(text.replace(old, new, 1))
        if not any(expected in complaint for complaint in complaints):
            print(f"not found: {new!r}: expected a complaint with {expected!r}, got {complaints}")
            failures += 1
    print(f"{len(VIOLATIONS)} planted, {failures} not found")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
