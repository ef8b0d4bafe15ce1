#!/usr/bin/python3
"""Faults in real processes: a fault at each step of the protocol, over each transport.

usage: matrix.py PROGRAM [--jobs N] [--full] [--sample N] [--write FILE] [WORDS...]

Runs the cells whose names have all WORDS, or all; a sample takes each N-th, and one of each phase, fault, kind and
transport. With --write the summary goes to that file, and the kills run one at a time, so that their delays are those of
one group on the machine. PROGRAM is faults_participant. In a cell three fresh processes meet, and one of them has a fault
at one step while they work. Then
  - each operation has the right result, or an error that names the lost member, within its bound;
  - the survivors go on: a call and a pass with each other;
  - where a member was lost another one joins under its name, and calls and is called;
  - nothing is left: no call, context, reference, handle, thread, descriptor, file, key in etcd or process.
Exit code 1 if a cell fails.
"""
import collections
import concurrent.futures
import os
import re
import signal
import sys
import time
import traceback

from cells import (ENGINES_OF_CURVE, FAULTS, FIRST_WORDS, LEASE, LEAVES, LOSSES, MEETINGS, TRANSPORTS, all_cells,
                   digest, sample)
from etcd import find_etcd
from processes import Group, Hang, Ports, wait_until_dead

SECOND = 1e9
START_MS = 120000
HIT_START_MS = 3000  # where a fault may keep them from meeting
STOP_MS = 15000
STOP_OF_LOST_MS = 5000  # which it waits for in whole where others never heard of it
SETTLED_WITHIN = 60.0
# The pool makes a thread for each core once it has so much to do, and one for each function that waits.
MORE_THREADS = 4
# A call to etcd beside the watch has a connection of its own, from the first renewal on.
CALLS_OF_ETCD = {"socket": 1}
# libzmq's context comes with the first socket of a worker, here once the lane is lost, and stays: two epolls and the
# mailboxes of its threads.
CONTEXT_OF_LIBZMQ = {"anon_inode": 5}
STRUCK_WITHIN = 30.0  # of the end of the phase: what ends it goes out later
MOST_TOLD = 200  # of a run with more cells those that fail are printed alone
MAY_FAIL_ONCE = 0.02  # of all cells
CRASH = re.compile(r" has died| ended with (?!-9$)| says: ")  # -9: it was killed here, as it did not end in a minute
TOGETHER = ("mesh", "gather", "diverged", "late")  # phases that all members run at once
ON_A_STAGE = ("stages", "lines")  # B and C are a mesh of their own
# What they do, where it has not the same name.
WORK = {"cold": "call", "curve": "call", "idle": "call", "etcd_lease": "steady", "etcd_return": "steady"}
# The delays that are measured: of operations of survivors, and of their callbacks for members.
KILL_TO_ERROR, KILL_TO_NEWS = "kill to named error", "kill to the news of it"
SILENCE_TO_NEWS = f"silence to the news of it (lease {LEASE:g} s)"
OUTCOMES = ("right result", "named error", "FAILED")
# What an error may be. A member that was stopped for long has lost all the others, or was told that it is lost.
NAMED = ("DISCONNECTED", "PEER_RESTARTED", "DIVERGED")


class Run:
    """One cell."""

    def __init__(self, program, cell, ports):
        self.cell, self.complaints, self.delays = cell, [], collections.defaultdict(list)
        self.outcomes = set()
        self.group = Group(program, cell, ports)
        self.victim = self.group.members[cell.victim]
        self.others = [name for name in "ABC" if name != cell.victim]

    def complain(self, text):
        self.complaints.append(text)

    # ---- judging ----

    def is_allowed(self, operation, is_victim):
        fault, status, message = self.cell.fault, operation["status"], operation["message"]
        if fault == "memory":
            return status == "OUT_OF_MEMORY" or status in NAMED and f'"{self.cell.victim}"' in message
        if fault not in LOSSES or status not in NAMED + (("CANCELLED",) if is_victim else ()):
            return False
        return is_victim or f'"{self.cell.victim}"' in message

    def judge(self, who, operations):
        """Of the phase: what was right, or failed as it should."""
        is_victim = who == self.cell.victim
        for operation in operations:
            what = f"{who}, {operation['what']}: {operation['status']} {operation['message']}"
            took = (operation["end"] - max(operation["begin"], self.victim.fault_at or 0)) / SECOND
            if operation["right"]:
                self.outcomes.add("right")
            elif operation["status"] == "OK":
                self.complain(f"wrong value: {what}")
            elif not self.is_allowed(operation, is_victim):
                self.complain(f"not allowed: {what}")
            else:
                self.outcomes.add("named")
                if self.cell.fault == "kill" and not is_victim:
                    self.delays[f"{KILL_TO_ERROR} by {'zmtp' if self.cell.is_zmtp() else 'libzmq'}"].append(took)
            if took > self.cell.bound(is_victim):
                self.complain(f"late, {took:.2f} s: {what}")

    def expect_right(self, who, operations):
        for operation in operations or [{"right": False, "what": "check", "status": "", "message": "it is dead"}]:
            if not operation["right"]:
                self.complain(f"afterwards {who}, {operation['what']}: {operation['status']} {operation['message']}")

    # ---- steps of a cell ----

    def arm(self):
        cell = self.cell
        fault = "stop" if cell.fault in ("short stop", "long stop") else cell.fault.replace(" ", "-")
        self.victim.ask(f"arm {cell.kind} {cell.way} {cell.nth} {fault}")

    def start_all(self):
        """Also of those that fail while they start: then once more, with another process where one was killed."""
        is_hit = self.cell.phase in MEETINGS
        start = f"start {HIT_START_MS if is_hit else START_MS}"
        if is_hit:
            self.arm()
        self.victim.tell(start)
        if self.cell.phase == "etcd_join":
            self.victim.has_struck.wait(STRUCK_WITHIN)
        for name in self.others:
            self.group.members[name].tell(start)
        answers = {self.cell.victim: self.victim.hear()}
        if answers[self.cell.victim] is None:
            wait_until_dead(self.victim)
            self.group.replace(self.cell.victim).tell(f"start {START_MS}")
        for name in "ABC":
            if answers.get(name) is None:
                answers[name] = self.group.members[name].hear()
        self.start_again([name for name, answer in answers.items() if answer["status"] != "OK"], answers)

    def start_again(self, failed, answers):
        for name in failed:
            self.judge_start(name, answers[name])
        if failed and self.victim.is_alive():
            self.victim.ask("mend")
        for name, answer in self.group.ask_all(f"start {START_MS}", failed).items():
            if answer["status"] != "OK":
                self.complain(f"{name} has not started again: {answer['status']} {answer['message']}")
        self.outcomes.add("named" if failed else "right")

    def judge_start(self, name, answer):
        status, message = answer["status"], answer["message"]
        named = [status in ("DEADLINE", "DISCONNECTED") and "rendezvous" in message]
        named.append(self.cell.fault == "memory" and status == "OUT_OF_MEMORY")  # that of rank 0 also fails who joins
        if name == self.cell.victim:
            named.append(self.cell.fault == "disk" and status == "INVALID_STATE" and "No space left" in message)
        if not any(named):
            self.complain(f"start of {name}: {status} {message}")

    def expect_started(self, name, answer):
        if answer["status"] != "OK":
            self.complain(f"{name} has not started: {answer['status']} {answer['message']}")

    def check(self, names):
        """Each of them calls each other, and passes with it."""
        for name in names:
            others = " ".join(other for other in names if other != name)
            self.expect_right(name, self.group.members[name].ask("check " + others))

    def excess(self, now, before):
        """What there is more of than before, where the pool had few to run."""
        allowed = collections.Counter(before["descriptors"])
        if self.cell.meets_in_etcd():
            allowed.update(CALLS_OF_ETCD)
        if self.cell.transport == "lane" and not self.cell.is_zmtp():
            allowed.update(CONTEXT_OF_LIBZMQ)
        more = {kind: count for kind, count in now["descriptors"].items() if count > allowed[kind]}
        if now["threads"] > before["threads"] + MORE_THREADS:
            more["threads"] = now["threads"]
        return more

    def settle(self, names, before=None):
        """Nothing is held, and what connections took is given back, soon."""
        counts = {}
        deadline = time.monotonic() + SETTLED_WITHIN
        for name in names:
            while True:
                counts[name] = self.group.members[name].ask("settle 3000")
                more = self.excess(counts[name], before[name]) if before else {}
                if not more or time.monotonic() > deadline:
                    break
            if counts[name]["held"] or more:
                self.complain(f"{name} still holds {counts[name]['held']} {more}, before {before and before[name]}")
        return counts

    def run_phase(self):
        phase = self.cell.phase
        names = "ABC" if phase in TOGETHER else "A"
        if phase == "etcd_return":
            self.group.etcd.revoke_leases()
        for name, operations in self.group.ask_all("run " + WORK.get(phase, phase), names).items():
            if operations is None:
                if name != self.cell.victim or self.cell.fault != "kill":
                    self.complain(f"{name} has died")
            else:
                self.judge(name, operations)

    def end(self, name):
        """Leaves nothing behind, once it is stopped."""
        member = self.group.members[name]
        left = member.ask("end")
        if left is None:
            self.complain(f"{name} has died")
        else:
            for what in ("descriptors", "threads", "handles"):
                if left[what] != 0:
                    self.complain(f"at the end {name} has {what}: {left[what]}")
        if member.close() != 0:
            self.complain(f"{name} ended with {member.process.returncode}")

    def lose_victim(self):
        """The members without the one that was lost; it is gone in the end, too."""
        if self.cell.fault == "kill":
            if wait_until_dead(self.victim) != -9:
                self.complain(f"{self.cell.victim} was not killed, but ended with {self.victim.process.returncode}")
            return
        if self.cell.phase not in LEAVES:
            self.victim.ask("mend")
            self.expect_stopped(self.cell.victim, self.victim.ask(f"stop {STOP_OF_LOST_MS}"))
        self.end(self.cell.victim)

    def expect_stopped(self, name, answer):
        if answer is None or answer["status"] != "OK":
            self.complain(f"{name} has not shut down: {answer}")

    def strike(self):
        """The phase, with the fault in it. Whether the victim is lost."""
        if self.cell.phase == "stop":
            return self.strike_end()
        if self.cell.phase in LEAVES:
            return self.strike_leave()
        if self.cell.phase not in MEETINGS:
            self.arm()
            self.run_phase()
            self.victim.has_struck.wait(STRUCK_WITHIN)
        if self.cell.fault in LOSSES and self.cell.phase not in MEETINGS:
            self.expect_told(self.others)
            self.check(self.others)
            self.settle(self.others)
            return True
        if self.cell.fault == "memory":
            return self.left_for_memory()
        return False

    def expect_told(self, names):
        """Each survivor is told of the loss, by the callback for members."""
        if self.cell.phase in FIRST_WORDS:  # those who have never spoken with it are not
            return
        for name, answer in self.group.ask_all(f"told 30000 {self.cell.victim}", names).items():
            delay = (answer["at"] - (self.victim.fault_at or 0)) / SECOND
            if answer["at"] == 0 or delay > self.cell.bound():
                self.complain(f"{name} was told of the loss after {delay:.2f} s (below 0: never)")
            self.delays[KILL_TO_NEWS if self.cell.fault == "kill" else SILENCE_TO_NEWS].append(delay)

    def left_for_memory(self):
        """A worker that ran out of memory where no call could be told has left."""
        self.group.members[self.cell.victim].ask("mend")
        answers = self.group.members[self.others[0]].ask("check " + self.cell.victim)
        failed = [answer for answer in answers if not answer["right"]]
        if failed and failed[0]["status"] not in NAMED:
            self.expect_right(self.others[0], failed)
        return bool(failed)

    def strike_end(self):
        self.arm()
        begin = time.monotonic()
        for name, answer in self.group.ask_all(f"stop {STOP_MS}").items():
            if answer is None and name == self.cell.victim and self.cell.fault == "kill":
                continue
            self.expect_stopped(name, answer)
            self.outcomes.add("right")
        if time.monotonic() - begin > self.cell.bound(is_victim=True):
            self.complain(f"the shutdown took {time.monotonic() - begin:.2f} s")
        return False

    def strike_leave(self):
        """Whatever becomes of it the member is gone, and the others go on."""
        self.arm()
        answer = self.victim.ask("stop 0")
        if answer is not None or self.cell.fault != "kill":
            self.expect_stopped(self.cell.victim, answer)
        self.outcomes.add("right")
        self.check(self.others)
        self.settle(self.others)
        return True

    def finish(self):
        if self.group.etcd:
            self.group.etcd.await_mended()
        living = [name for name in "ABC" if self.group.members[name].is_alive()]
        if self.cell.phase != "stop":
            for name, answer in self.group.ask_all(f"stop {STOP_MS}", living).items():
                self.expect_stopped(name, answer)
        for name in living:
            self.end(name)
        # What a killed process had is cleared by the next one that starts, and the files of the group by the last one
        # that leaves. Where that is the killed one they stay.
        files = self.group.files_left()
        if self.cell.phase == "stop" and self.cell.fault == "kill":
            files = [name for name in files if not name.startswith(("distag.", "distag-ps.")) and name not in ("group", "lock")]
        if files:
            self.complain(f"files are left: {files}")
        keys = self.group.etcd.count_keys() if self.group.etcd else 0
        if keys:
            self.complain(f"{keys} keys are left in etcd")

    def run(self):
        self.start_all()
        before = None
        if self.cell.phase not in FIRST_WORDS + MEETINGS:
            self.check("ABC")
            if self.cell.phase in ON_A_STAGE:
                for name, operations in self.group.ask_all("run take_stage", "BC").items():
                    self.expect_right(name, operations)
            before = self.settle("ABC")
        if self.strike():
            self.lose_victim()
            answer = self.group.replace(self.cell.victim).ask(f"start {START_MS}")
            self.expect_started(self.cell.victim, answer)
        if not self.victim.has_struck.is_set():
            self.complain("the step was not reached")
        if self.cell.phase != "stop":
            self.group.ask_all("mend")
            self.check("ABC")
            self.settle("ABC", before)
        self.finish()


def run_cell(program, cell):
    """(cell, outcome, complaints, delays, seconds)"""
    begin = time.monotonic()
    try:
        complaints, outcomes, delays = play(program, cell)
    except Exception:  # the others go on, and this one fails by its reason
        complaints, outcomes, delays = [traceback.format_exc().strip()], set(), {}
    outcome = "named error" if "named" in outcomes else "right result"
    return cell, "FAILED" if complaints else outcome, complaints, delays, time.monotonic() - begin


def play(program, cell):
    """(complaints, outcomes, delays)"""
    with Ports(2) as ports:
        run = Run(program, cell, ports.numbers)
        try:
            run.run()
        except Hang as hang:
            run.complain(f"hang: {hang}")
        except (TypeError, KeyError) as error:  # an answer that is not there: a process has died
            run.complain(f"a process has died: {error!r}")
        finally:
            run.group.close()
        for member in run.group.all_members:
            if member.said:
                run.complain(f"{member.name} says: {member.said.strip()}")
    return run.complaints, run.outcomes, run.delays


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(results, delays):
    """What check_written.py reads."""
    lines = [f"{len(results)} cells: "
             + ", ".join(f"{count} {outcome}" for outcome, count in
                         sorted(collections.Counter(result[1] for result in results).items())),
             f"SHA-256 of their names: {digest(result[0] for result in results)}"]
    for what, values in sorted(delays.items()):
        lines.append(f"{what}, {len(values)} times: p50 {percentile(values, 0.5) * 1e3:.1f} ms, "
                     f"p99 {percentile(values, 0.99) * 1e3:.1f} ms, longest {max(values) * 1e3:.1f} ms")
    for title, key, values in (("fault", lambda cell: cell.fault, FAULTS),
                               ("transport", lambda cell: cell.transport, TRANSPORTS + ENGINES_OF_CURVE)):
        lines.append(f"\n{title:24}" + "".join(f"{outcome:>14}" for outcome in OUTCOMES))
        for value in values:
            found = [result[1] for result in results if key(result[0]) == value]
            counts = [sum(each.startswith(outcome) for each in found) for outcome in OUTCOMES]
            lines.append(f"{value:24}" + "".join(f"{count:>14}" for count in counts))
    return "\n".join(lines) + "\n"


def run_all(program, cells, jobs, says_all):
    """Results in the order of the cells; those that fail are printed as they come. Who is told to end says what ran."""
    running = {}

    def run_noted(cell):
        running[cell] = time.monotonic()
        result = run_cell(program, cell)
        del running[cell]
        _, outcome, complaints, _, seconds = result
        if complaints or says_all:
            lines = [f"{outcome} {seconds:.1f} s {cell}", *complaints]
            print("\n    ".join(lines) + "\n", end="", flush=True)
        return result

    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        futures = [pool.submit(run_noted, cell) for cell in cells]
        while concurrent.futures.wait(futures, timeout=1).not_done:  # a signal right before a wait is heard after it
            pass
        return [future.result() for future in futures]
    except BaseException as reason:
        lines = [f"it ends by {reason!r} while these cells run:"]
        lines += [f"{time.monotonic() - since:.1f} s {cell}" for cell, since in list(running.items())]
        print("\n    ".join(lines), flush=True)
        raise
    finally:  # who is told to end ends the cells that run
        pool.shutdown(cancel_futures=True)


def run_again(program, results):
    """A machine that has no time for a process is like a fault of its own: of a whole run a few cells that failed run once
    more, with nothing beside them. They are told apart. A process that ended by itself or has something to say does not
    count as such."""
    complaints = {result[0]: result[2] for result in results if result[1] == "FAILED"}
    failed = list(complaints)
    has_crashed = any(CRASH.search(line) for lines in complaints.values() for line in lines)
    if has_crashed or len(failed) > max(1, MAY_FAIL_ONCE * len(results)):
        return results
    again = {result[0]: result for result in run_all(program, failed, 1, True)}
    for cell, result in again.items():
        if result[1] != "FAILED":
            again[cell] = (cell, result[1] + ", at the second try", *result[2:])
    return [again.get(result[0], result) for result in results]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end (SIGTERM)"))
    program, words = sys.argv[1], [word for word in sys.argv[2:] if word != "--full"]
    options = {"--jobs": "6", "--sample": "1", "--write": ""}
    while words and words[0] in options:
        options[words[0]] = words[1]
        words = words[2:]
    cells = [cell for cell in all_cells("--full" in sys.argv) if all(word in str(cell) for word in words)]
    cells = sample(cells, int(options["--sample"]))
    if not find_etcd() and any(cell.meets_in_etcd() for cell in cells):
        print("there is no etcd: install etcd-server")
        if options["--write"] or os.environ.get("DISTAG_CI"):
            sys.exit(1)
        cells = [cell for cell in cells if not cell.meets_in_etcd()]
    alone = [cell for cell in cells if cell.fault == "kill" and options["--write"]]
    others = [cell for cell in cells if cell not in alone]
    results = run_all(program, alone, 1, False) + run_all(program, others, int(options["--jobs"]), len(cells) <= MOST_TOLD)
    if options["--write"]:  # a sample is a test of the suite, which tries it once more itself
        results = run_again(program, results)
    results.sort(key=lambda result: result[0].number)
    delays = collections.defaultdict(list)
    for result in results:
        for what, values in result[3].items():
            delays[what] += values
    text = summary(results, delays)
    print(text.split("\n\n")[0])
    for what, values in sorted(delays.items()):
        print(f"figure: faults.{what.split(' (')[0].replace(' ', '_')}_p50_ms {percentile(values, 0.5) * 1e3:.1f} ms")
    if options["--write"]:
        with open(options["--write"], "w", encoding="utf-8") as file:
            file.write(text)
    sys.exit(1 if not results or any(result[1] == "FAILED" for result in results) else 0)


if __name__ == "__main__":
    main()
