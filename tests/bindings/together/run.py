"""One model by a process per language: bits are those of a group in C, and who is killed is named.
usage: run.py DIGITS NAME=COMMAND..., where a command has commas for spaces, and the first name is "c" """
import os
import re
import subprocess
import sys
import tempfile

STEPS = 20
ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1")


class Group:
    """Processes of one group, in a folder of their own."""

    def __init__(self, commands, digits, first, steps):
        self.folder = tempfile.TemporaryDirectory()
        self.processes = []
        try:
            for rank, command in enumerate(commands):
                arguments = [str(each) for each in (rank, len(commands), self.folder.name, digits, first, steps)]
                self.processes.append(subprocess.Popen(command + arguments, env=ENVIRONMENT, stdin=subprocess.PIPE,
                                                       stdout=subprocess.PIPE, text=True))
        except OSError:  # those that run end with it
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.folder.cleanup()

    def finish(self):
        """What each printed, and its exit code."""
        outputs = [process.communicate(timeout=240)[0] for process in self.processes]
        return outputs, [process.returncode for process in self.processes]

    def finish_lost(self):
        """The same of those that have lost one: they stay until all have said so."""
        outputs = [self.until_failed(process) for process in self.processes]
        for process in self.processes:
            process.stdin.close()
        return outputs, [process.wait(120) for process in self.processes]

    @staticmethod
    def until_failed(process):
        text = ""
        for line in iter(process.stdout.readline, ""):
            text += line
            if line.startswith("failed"):
                break
        return text


def learn(commands, digits, first):
    """The lines of all steps, in the order of the turns."""
    with Group(commands, digits, first, STEPS) as group:
        outputs, codes = group.finish()
    if any(codes):
        sys.exit(f"first {first}: the processes left with {codes}: {outputs}")
    turns = [outputs[(first + turn) % len(commands)] for turn in range(len(commands))]
    return "".join(turns).splitlines()


def lose(names, commands, digits, victim):
    """Complaints about those that are left when one is killed while its neighbour trains."""
    trainer = (victim + 1) % len(commands)
    with Group(commands, digits, trainer, 1000000) as group:
        for _ in range(3):
            group.processes[trainer].stdout.readline()
        group.processes[victim].kill()
        outputs, codes = group.finish_lost()
    for rank, (output, code) in enumerate(zip(outputs, codes)):
        last = output.splitlines()[-1] if output else ""
        if rank != victim and not (code == 3 and re.match(rf"failed 40 .*layer{victim}\b", last)):
            yield f"{names[victim]} was killed, {names[rank]} left with {code}: {last!r}"


def main():
    digits = sys.argv[1]
    names, commands = zip(*((name, command.split(",")) for name, command in
                            (each.split("=", 1) for each in sys.argv[2:])))
    complaints = []
    expected = learn([commands[0]] * len(commands), digits, 0)
    if len(expected) != STEPS * len(commands):
        complaints.append(f"{len(expected)} steps in C, not {STEPS * len(commands)}")
    for first, name in enumerate(names):
        found = learn(list(commands), digits, first)
        different = [(one, other) for one, other in zip(expected, found) if one != other]
        if len(found) != len(expected) or different:
            complaints.append(f"{name} trains first: {len(different)} of {len(found)} steps differ: {different[:1]}")
    for victim in range(len(names)):
        complaints += lose(names, list(commands), digits, victim)
    losses = [bytes.fromhex(line.split()[2]) for line in expected]
    if losses[-1] >= losses[0]:  # positive floats in the order of their bits
        complaints.append("nothing was learned")
    print("\n".join(complaints) or f"{', '.join(names)}: {len(expected)} steps with the bits of C, whoever trains")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
