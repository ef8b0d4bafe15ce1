"""One model by a process per language: bits are those of a group in C, a process that is killed is named, and one in its
place exchanges values and trains on; a group of which each process was started anew has the bits of C again.
usage: run.py PART/PARTS DIGITS NAME=COMMAND...
PART counts from 1: of all trials, each PARTS-th. A command has commas for spaces, and the first name is "c". """
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile

STEPS = 20
CALLS = 5  # of each to each: 210 at once with seven languages
NO_TURNS = -1
RENEWED = 3  # steps of a group whose members are all started anew
ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1")


class Group:
    """Processes of one group, in a folder of their own, or over tcp with a key."""

    def __init__(self, commands, digits, first, steps, tcp=False):
        self.folder = tempfile.TemporaryDirectory()
        self.rendezvous, self.environment = f"file://{self.folder.name}", dict(ENVIRONMENT)
        if tcp:
            self.use_tcp()
        self.commands, self.digits, self.processes = commands, digits, []
        try:
            for rank in range(len(commands)):
                self.processes.append(self.start(rank, first, steps))
        except OSError:  # those that run end with it
            self.__exit__()
            raise

    def use_tcp(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.rendezvous = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        key = os.path.join(self.folder.name, "key")
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(36))
        self.environment["DISTAG_GROUP_KEY_FILE"] = key

    def start(self, rank, first, steps):
        arguments = [str(each) for each in (rank, len(self.commands), self.rendezvous, self.digits, first, steps)]
        return subprocess.Popen(self.commands[rank] + arguments, env=self.environment, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for rank in range(len(self.processes)):
            self.end(rank)
        self.folder.cleanup()

    def finish(self):
        """What each printed, and its exit code."""
        outputs = [process.communicate(timeout=240)[0] for process in self.processes]
        return outputs, [process.returncode for process in self.processes]

    def renew(self, rank, first, steps):
        """Starts one anew in the place of another, which is ended; gives its first line."""
        self.end(rank)
        self.processes[rank] = self.start(rank, first, steps)
        return self.processes[rank].stdout.readline()

    def replace(self, victim, trainer):
        """Kills one. Gives what all have said before and the others after that, what one in its place says of the values
        that it had back from each, and the steps of a trainer with it."""
        self.processes[victim].kill()
        outputs = [self.until_failed(process) for process in self.processes]
        exchanged = self.renew(victim, NO_TURNS, CALLS)
        self.processes[trainer].stdin.write("3\n")
        self.processes[trainer].stdin.flush()
        return outputs, exchanged, [self.processes[trainer].stdout.readline() for _ in range(3)]

    def leave(self):
        """Ends what waits for the end of its input."""
        for process in self.processes:
            process.stdin.close()
        return [process.wait(120) for process in self.processes]

    def end(self, rank):
        process = self.processes[rank]
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()

    @staticmethod
    def until_failed(process):
        text = ""
        for line in iter(process.stdout.readline, ""):
            text += line
            if line.startswith("failed"):
                break
        return text


def learn(commands, digits, first, tcp=False):
    """The lines of all steps, in the order of the turns."""
    with Group(commands, digits, first, STEPS, tcp) as group:
        outputs, codes = group.finish()
    if any(codes):
        sys.exit(f"first {first}: the processes left with {codes}: {outputs}")
    turns = [outputs[(first + turn) % len(commands)] for turn in range(len(commands))]
    return "".join(turns).splitlines()


def lose(names, commands, digits, victim):
    """Complaints about those that are left when one is killed while its neighbour trains, and about a new one in its place."""
    trainer = (victim + 1) % len(commands)
    with Group(commands, digits, trainer, 1000000) as group:
        for _ in range(3):
            group.processes[trainer].stdout.readline()
        outputs, exchanged, again = group.replace(victim, trainer)
        codes = group.leave()
    for rank, (output, code) in enumerate(zip(outputs, codes)):
        last = output.splitlines()[-1] if output else ""
        if rank != victim and not (code == 3 and re.match(rf"failed 40 .*layer{victim}\b", last)):
            yield f"{names[victim]} was killed, {names[rank]} left with {code}: {last!r}"
    if exchanged != all_exchanged(names):
        yield f"{names[victim]} was started anew, and had other values back: {exchanged!r}"
    if not all(re.fullmatch(rf"0 {step} [0-9a-f]{{8}}( \d+){{{len(names)}}}\n", line)
                            for step, line in enumerate(again)):
        yield f"{names[victim]} was started anew, and {names[trainer]} did not train with it: {again}"


def renew(names, commands, digits, expected):
    """Complaints about a group whose members are started anew one by one, of which the last trains; each is the last once. All
    layers have the numbers of the first start then, so the bits are those of the first steps in C."""
    with Group(commands, digits, NO_TURNS, 0) as group:
        for process in group.processes:
            process.stdout.readline()
        for trainer, name in enumerate(names):
            for step in range(1, len(names)):
                rank = (trainer + step) % len(names)
                line = group.renew(rank, NO_TURNS, CALLS)
                if line != all_exchanged(names):
                    yield f"{names[rank]} was started anew before {name}, and had other values back: {line!r}"
            found = [group.renew(trainer, trainer, RENEWED)]
            found += [group.processes[trainer].stdout.readline() for _ in range(RENEWED - 1)]
            if [line.rstrip("\n") for line in found] != expected[:RENEWED]:
                yield f"all were started anew, and {name} trains with other bits: {found}"


def all_exchanged(names):
    return f"exchanged {CALLS * (len(names) - 1)}\n"


def exchange(names, commands, digits):
    """Complaints about values that do not come back as they were sent, from each to each at once."""
    with Group(commands, digits, NO_TURNS, CALLS) as group:
        for name, process in zip(names, group.processes):
            line = process.stdout.readline()
            if line != all_exchanged(names):
                yield f"{name} had other values back from {CALLS * (len(names) - 1)} calls: {line!r}"
        codes = group.leave()
    if any(codes):
        yield f"after the exchange the processes left with {codes}"


def train(names, commands, digits, expected, first):
    """Complaints about a group of one process a language whose steps begin with `first`."""
    found = learn(commands, digits, first)
    different = [(one, other) for one, other in zip(expected, found) if one != other]
    if len(found) != len(expected) or different:
        yield f"{names[first]} trains first: {len(different)} of {len(found)} steps differ: {different[:1]}"


def reorder(what, commands, digits, expected, tcp):
    """Complaints about another order of the ranks: each layer is one of another language."""
    if learn(commands, digits, 1, tcp) != expected:
        yield f"the steps differ with the ranks {what}"


def main():
    part, parts = (int(each) for each in sys.argv[1].split("/"))
    digits = sys.argv[2]
    names, commands = zip(*((name, command.split(",")) for name, command in
                            (each.split("=", 1) for each in sys.argv[3:])))
    commands = list(commands)
    expected = learn([commands[0]] * len(commands), digits, 0)
    complaints = []
    if len(expected) != STEPS * len(commands):
        complaints.append(f"{len(expected)} steps in C, not {STEPS * len(commands)}")
    trials = [renew(names, commands, digits, expected), exchange(names, commands, digits),
              reorder("backwards, over tcp with a key", commands[::-1], digits, expected, True),
              reorder("from the third on", commands[2:] + commands[:2], digits, expected, False)]
    for each in range(len(names)):
        trials += [train(names, commands, digits, expected, each), lose(names, commands, digits, each)]
    for trial in trials[part - 1::parts]:
        complaints += trial
    losses = [bytes.fromhex(line.split()[2]) for line in expected]
    if losses[-1] >= losses[0]:  # positive floats in the order of their bits
        complaints.append("nothing was learned")
    print("\n".join(complaints) or f"{', '.join(names)}: {len(trials[part - 1::parts])} of {len(trials)} trials, "
          f"{len(expected)} steps with the bits of C in each that trains")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
