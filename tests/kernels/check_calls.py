"""Programs over rows (src/ops/rows.h) call nothing where they are compiled for an instruction set: their lambdas are
DISTAG_INLINE_LAMBDA.

usage: check_calls.py OBJDUMP libdistag_ops.a
       check_calls.py      tests itself
"""
import re
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <(\S+)>:")
KERNEL = re.compile(r"4simd\d+run_avx.*10RowProgram")
CALL = re.compile(r"^\s*[0-9a-f]+:\s+(?:call|jmp)\s(?:[^<]*<([^>+]+))?")
TARGET = re.compile(r"^\s*[0-9a-f]+: R_X86_64_\w+\s+([^\s+-]+)")
# Of the C library: one number of a row, and what fills a row.
ALLOWED = {"expm1", "expm1f", "memset", "memcpy", "memmove"}


def calls_of(lines):
    """(kernel, what it calls) for each call out of a kernel; (kernel, None) for a kernel."""
    kernel, is_call = None, False
    for line in lines:
        function = FUNCTION.match(line)
        if function:
            kernel = function.group(1) if KERNEL.search(function.group(1)) else None
            if kernel:
                yield kernel, None
        if not kernel:
            continue
        call = CALL.match(line)
        if call and call.group(1) not in (None, kernel):  # within a section; one of its own jumps has its name, too
            yield kernel, call.group(1)
        target = TARGET.match(line) if is_call else None
        if target:
            yield kernel, target.group(1)
        is_call = bool(call)


def check(lines):
    kernels, complaints = set(), set()
    for kernel, target in calls_of(lines):
        kernels.add(kernel)
        if target and target not in ALLOWED:
            complaints.add(f"{kernel} calls {target}")
    if not kernels:
        complaints.add("there is no program over rows: nothing was looked for")
    return len(kernels), sorted(complaints)


def self_test():
    kernel = "0000 <_ZN6distag3ops4simd8run_avx2INS0_10RowProgramIfE>:"
    other = "0000 <_ZN6distag3ops4simd12run_baselineINS0_10RowProgramIfE>:"
    call = [f"  12:\tcall   17 <{kernel[6:-2]}+0x17>", "\t\t\t13: R_X86_64_PLT32\t%s-0x4"]
    load = ["  12:\tmov    0x0(%rip),%rax", "\t\t\t13: R_X86_64_GOTPCREL\tdata-0x4"]
    assert check([kernel, *load, call[0], call[1] % "memset"]) == (1, [])
    assert check([kernel, call[0], call[1] % ".text"])[1] == [kernel[6:-2] + " calls .text"]
    assert check([kernel, "  12:\tcall   a60 <f.constprop.0>"])[1] == [kernel[6:-2] + " calls f.constprop.0"]
    assert check([kernel, f"  12:\tjmp    a60 <{kernel[6:-2]}+0x30>"]) == (1, [])
    assert check([kernel, *load, other, call[0], call[1] % "f"]) == (1, [])
    assert check([other])[1]
    print("the check finds what it is to find")


def main():
    if len(sys.argv) == 1:
        return self_test()
    objdump, archive = sys.argv[1:]
    with subprocess.Popen([objdump, "-dr", "--no-show-raw-insn", archive], stdout=subprocess.PIPE, text=True) as process:
        count, complaints = check(process.stdout)
    if process.returncode != 0:
        complaints.append(f"{objdump} failed")
    print("\n".join(complaints) or f"{count} programs without calls")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
