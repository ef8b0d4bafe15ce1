"""The four patterns of PyTorch's RPC examples: distag's program and the one with PyTorch's API give the same losses,
and distag's is not the longer one. PyTorch's side runs where PyTorch is installed."""
import importlib.util
import json
import os
import socket
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
DIGITS = os.path.join(ROOT, "samples", "data", "digits.csv")
OURS = os.path.join(ROOT, "bindings", "python", "distag", "samples")
THEIRS = os.path.join(HERE, "torch_patterns")
PROCESSES = {"parameter_server": 3, "pipeline": 3, "rnn": 2, "reinforcement": 3}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def losses(program, count):
    """Runs a program as a group on this machine, and gives the numbers that it prints."""
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(count),
                       OPENBLAS_NUM_THREADS="1")
    children = [subprocess.Popen([sys.executable, "-B", program, DIGITS], env=dict(environment, RANK=str(rank)),
                                 stdout=subprocess.PIPE, text=True) for rank in range(count)]
    try:
        outputs = [child.communicate(timeout=240)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    if any(child.returncode for child in children):
        raise AssertionError(f"{program} left with {[child.returncode for child in children]}")
    return [float(number) for output in outputs for number in output.split()]


class Patterns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Starts PyTorch's side, which loads while the programs of distag run."""
        cls.torch, cls.theirs = None, None
        if importlib.util.find_spec("torch") is not None:
            sizes = [f"{name}={count}" for name, count in PROCESSES.items()]
            environment = dict(os.environ, TP_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
            cls.torch = subprocess.Popen([sys.executable, "-B", os.path.join(THEIRS, "run_all.py"), DIGITS, *sizes],
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    @classmethod
    def losses_of_torch(cls, name):
        if cls.theirs is None:
            out, err = cls.torch.communicate(timeout=240)
            if cls.torch.returncode:
                raise AssertionError(err)
            cls.theirs = json.loads(out)
        return cls.theirs[name]

    @classmethod
    def tearDownClass(cls):
        if cls.torch is not None:
            cls.torch.kill()
            cls.torch.communicate()

    def check(self, name):
        ours = losses(os.path.join(OURS, f"{name}.py"), PROCESSES[name])
        self.assertGreaterEqual(len(ours), 4)
        if name != "reinforcement":
            self.assertLess(ours[-1], ours[0])
        with open(os.path.join(OURS, f"{name}.py")) as one, open(os.path.join(THEIRS, f"{name}.py")) as other:
            self.assertLessEqual(len(one.readlines()), len(other.readlines()))
        if self.torch is None:
            self.skipTest("PyTorch is not installed: its side was not run")
        theirs = self.losses_of_torch(name)
        self.assertEqual(len(ours), len(theirs))
        for one, other in zip(ours, theirs):
            self.assertLess(abs(one - other), 1e-5)

    def test_parameter_server(self):
        self.check("parameter_server")

    def test_pipeline(self):
        self.check("pipeline")

    def test_rnn(self):
        self.check("rnn")

    def test_batched_reinforcement_learning(self):
        self.check("reinforcement")


if __name__ == "__main__":
    unittest.main()
