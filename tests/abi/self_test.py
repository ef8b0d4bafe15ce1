"""Changes a copy of the header, builds a library of it, and looks at what the gate says: growth passes, else it fails.
usage: self_test.py C_COMPILER WORK_FOLDER

The library has all functions of the header without what they do, which is no part of the interface: that of the header
as it is, is for libabigail the same as the real one."""
import os
import shutil
import subprocess
import sys

import gate
import header_text

HEADER = gate.check_frozen.read(os.path.join(gate.ROOT, "include", "distag.h"))
VERSION_SCRIPT = gate.check_frozen.read(os.path.join(gate.ROOT, "cmake", "distag.map"))
NEG = "DISTAG_API distag_status distag_neg(distag_tensor *x, distag_tensor **out_y, distag_error *err);"

# Name, replacements in the header, and a part of what the gate says of the library: None where it passes.
CHANGES = [
    ("nothing", [], None),
    ("a function at the end of the table",
     [("} distag_api;", "  void (*halt)(void);\n} distag_api;"),
      ("DISTAG_API const distag_api *distag_get_api", "DISTAG_API void distag_halt(void);\n"
       "DISTAG_API const distag_api *distag_get_api")], None),
    ("members at the end of structs", [("} distag_stats;", "  uint64_t naps;\n} distag_stats;"),
                                       ("} distag_worker_options;", "  uint32_t nap;\n} distag_worker_options;")], None),
    ("a function is gone", [(NEG, "")], "distag_neg"),
    ("a function of the open version is gone",
     [("DISTAG_API distag_status distag_copy_handle_report(", "DISTAG_API distag_status distag_copy_handles(")],
     "distag_copy_handle_report"),
    ("a parameter is another", [(NEG, NEG.replace("distag_tensor *x", "distag_value *x"))], "distag_neg"),
    ("a parameter more", [(NEG, NEG.replace("distag_tensor *x", "distag_tensor *x, int32_t flag"))], "distag_neg"),
    ("a result is another", [("DISTAG_API int32_t distag_future_poll(", "DISTAG_API int64_t distag_future_poll(")],
     "distag_future_poll"),
    ("a type is wider", [("typedef int32_t distag_status;", "typedef int64_t distag_status;")], "distag_status"),
    ("two slots of different types are swapped",
     [("  int32_t (*future_poll)(distag_future *);", ""),
      ("  uint64_t (*get_handle_count)(void);",
       "  int32_t (*future_poll)(distag_future *);\n  uint64_t (*get_handle_count)(void);")], "future_poll"),
    ("two slots of one type are swapped", [("op_neg, op_exp", "op_exp, op_neg")], "op_neg"),
    ("two slots of the open version are swapped",
     [("(*optimizer_save_async)", "(*halt)"), ("(*optimizer_load_async)", "(*optimizer_save_async)"),
      ("(*halt)", "(*optimizer_load_async)")], "optimizer_save_async"),
    ("a slot between", [("  uint64_t (*get_handle_count)(void);",
                         "  uint64_t (*get_handle_count)(void);\n  void (*halt)(void);")], "halt"),
    ("a slot is gone", [("  int32_t (*future_poll)(distag_future *);", "")], "future_poll"),
    ("a slot is swapped, and one is new at the end",
     [("op_neg, op_exp", "op_exp, op_neg"), ("} distag_api;", "  void (*halt)(void);\n} distag_api;")], "op_neg"),
    ("a member is moved", [("  uint64_t passes_run, passes_failed;", "  uint64_t passes_failed, passes_run;")],
     "passes_run"),
    ("a member is moved, and one is new at the end",
     [("  uint64_t passes_run, passes_failed;", "  uint64_t passes_failed, passes_run;"),
      ("} distag_stats;", "  uint64_t naps;\n} distag_stats;")], "passes_run"),
    ("a member of the open version is moved",
     [("distag_invocation *invocation;", "uint64_t spare; distag_invocation *invocation;")], "invocation"),
    ("a member is narrower", [("  char name[128];", "  char name[64];")], "name"),
    ("a member is gone", [("  uint64_t peers_lost;", "")], "peers_lost"),
    ("a struct has become smaller and another larger",
     [("  uint64_t peers_lost;", ""), ("} distag_error;", "  int32_t depth;\n} distag_error;")], "peers_lost"),
]

# The same for what it says of the header.
CHANGES_OF_HEADER = [
    ("nothing", [], None),
    ("a new enumerator", [("  DISTAG_E_REMOTE = 60,", "  DISTAG_E_REMOTE = 60, DISTAG_E_TIRED = 99,")], None),
    ("a function is gone", [(NEG, "")], "distag_neg"),
    ("an enumerator is another", [("DISTAG_E_REMOTE = 60", "DISTAG_E_REMOTE = 65")], "DISTAG_E_REMOTE"),
    ("an enumerator is gone", [("  DISTAG_LOG_INFO = 3,\n", "")], "DISTAG_LOG_INFO"),
]


def changed(text, replacements):
    for old, new in replacements:
        if text.count(old) == 0:
            raise ValueError(f"the text has no longer {old!r}")
        text = text.replace(old, new, 1)
    return text


def source(header):
    """Every function of a header, doing nothing."""
    bodies = ["#include <distag.h>"]
    for function in header_text.functions(header):
        parameters = ", ".join(f"{each.type} {each.name}" for each in function.parameters) or "void"
        body = "" if function.result == "void" else "return 0;"
        bodies.append(f"{function.result} {function.name}({parameters}) {{ {body} }}")
    return "\n".join(bodies)


def build(compiler, folder, header, version_script=VERSION_SCRIPT, soname="libdistag.so.0", debug="-g"):
    """A library of a header. Its parameters are unused and its results wrong, so there are no warnings."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, text in (("distag.h", header), ("distag.map", version_script)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    library = os.path.join(folder, "libdistag.so")
    subprocess.run([compiler, debug, "-w", "-shared", "-fPIC", "-I", folder, "-Wl,-soname," + soname,
                    "-Wl,--version-script=" + os.path.join(folder, "distag.map"), "-x", "c", "-", "-o", library],
                   input=source(header), text=True, check=True)
    return library


def judge(name, found, expected):
    """Whether the gate said what it should."""
    said = "\n".join(found)
    if (expected is None and not found) or (expected is not None and expected in said):
        return 0
    print(f"{name}: expected {expected or 'no complaint'}, the gate said:\n{said or 'nothing'}")
    return 1


def main():
    compiler, folder = sys.argv[1:]
    failures = 0

    def of_library(name, expected, header=HEADER, **how):
        nonlocal failures
        library = build(compiler, folder, header, **how)
        try:
            failures += judge(name, gate.of_library(library, folder), expected)
        except SystemExit as refused:
            failures += judge(name, [str(refused)], expected)

    for name, replacements, expected in CHANGES:
        of_library(name, expected, changed(HEADER, replacements))
    of_library("a function is in another node", "distag_neg", version_script=changed(
        VERSION_SCRIPT, [("    distag_neg;\n", ""), ("  global: distag_*;", "  global: distag_neg; distag_*;")]))
    of_library("the soname is another", "libdistag.so.1", soname="libdistag.so.1")
    of_library("no types", "has no types", debug="-g1")

    for name, replacements, expected in CHANGES_OF_HEADER:
        with open(os.path.join(folder, "distag.h"), "w", encoding="utf-8") as file:
            file.write(changed(HEADER, replacements))
        failures += judge(name, gate.of_header(folder), expected)
    shutil.rmtree(folder)
    print(f"{len(CHANGES) + 3 + len(CHANGES_OF_HEADER)} changes, {failures} judged wrongly")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
