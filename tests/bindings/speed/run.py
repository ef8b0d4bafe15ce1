"""What a language costs over C: medians of rounds in which all take turns. See README.md.
usage: run.py [--rounds N] [--only ROW...] [--must ROW=LIMIT...] [--figures NAME] -- C_PROGRAM PROGRAM...
op is in microseconds above C, others are ratios. With --must a row beyond its limit fails. With several programs, such as one
before and after a change, each has its rows. With --figures they are figures of a run as well."""
import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

ROWS = ("call", "served", "flight", "op")
COUNTS = {"call": 3000, "flight": 10000, "op": 50000}


class Pair:
    """A caller and a server."""

    def __init__(self, caller, server):
        self.folder = tempfile.TemporaryDirectory()
        self.calls = 0  # that the server has answered
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
        self.server = subprocess.Popen(shlex.split(server) + ["serve", self.folder.name], env=environment)
        self.caller = subprocess.Popen(shlex.split(caller) + ["measure", self.folder.name], env=environment, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def measure(self, name):
        self.caller.stdin.write(f"{name} {COUNTS[name]}\n")
        self.caller.stdin.flush()
        self.calls += COUNTS[name] if name != "op" else 0
        return float(self.caller.stdout.readline())

    def leave(self):
        self.caller.stdin.close()
        codes = self.caller.wait(120), self.wait_server()
        self.caller.stdout.close()
        self.folder.cleanup()
        return codes

    def wait_server(self):
        _, status, used = os.wait4(self.server.pid, 0)
        self.server.returncode = os.waitstatus_to_exitcode(status)
        calls = self.calls or 1
        self.microseconds = (used.ru_utime + used.ru_stime) * 1e6 / calls
        self.switches = used.ru_nvcsw / calls
        return self.server.returncode


class Language:
    """A program beside the one in C, and what its rows were."""

    def __init__(self, c, program, rows):
        self.program, self.rows, self.found = program, rows, {name: [] for name in rows}
        self.caller = Pair(program, c) if set(rows) - {"served"} else None
        self.server = Pair(c, program) if "served" in rows else None

    def measure(self, plain, is_warm):
        for name in self.rows:
            base = plain.measure("call" if name == "served" else name)
            own = self.server.measure("call") if name == "served" else self.caller.measure(name)
            if is_warm:
                self.found[name].append((own - base) * 1e6 if name == "op" else own / base)

    def leave(self):
        return [pair.leave() for pair in (self.caller, self.server) if pair]

    def report(self, limits, plain, figures):
        """Prints its rows, and tells whether one is beyond its limit."""
        is_beyond = False
        if self.server:
            text = f"a served call: {self.server.microseconds:.1f} us of the processor, {self.server.switches:.2f} waits"
            if list(self.rows) == ["served"]:  # else those of C are of other calls as well
                text += f"; in C {plain.microseconds:.1f} us, {plain.switches:.2f} waits"
            print(f"{text}; start-up included")
        for name, values in self.found.items():
            median = statistics.median(values)
            beyond = median > limits.get(name, float("inf"))
            is_beyond |= beyond
            print(f"{name:7} {median:6.2f}{' us above C' if name == 'op' else 'x'}  (of {min(values):.2f} to {max(values):.2f})"
                  f"{'  beyond ' + str(limits[name]) if beyond else ''}")
            if figures:
                print(f"figure: {figures}_{name} {median:.2f} {'us_above_C' if name == 'op' else 'times_C'}")
        return is_beyond


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="*", choices=ROWS, default=ROWS)
    parser.add_argument("--must", nargs="*", default=[])
    parser.add_argument("--figures")
    parser.add_argument("c")
    parser.add_argument("programs", nargs="+")
    options = parser.parse_args()
    plain = Pair(options.c, options.c)
    languages = [Language(options.c, program, options.only) for program in options.programs]
    for number in range(options.rounds + 1):  # the first warms up
        for language in languages:
            language.measure(plain, number > 0)
    codes = plain.leave(), *(code for language in languages for code in language.leave())
    failed = any(code != (0, 0) for code in codes)
    limits = {name: float(limit) for name, limit in (each.split("=") for each in options.must)}
    for language in languages:
        if len(languages) > 1:
            print(language.program)
        failed |= language.report(limits, plain, options.figures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
