"""Every public name of the package has a document; its samples give what they say; it installs. tests/documents runs the
programs of the documents."""
import os
import subprocess
import sys
import tempfile
import types
import unittest

import distag
from support import killed_when_late

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
BUILD = os.path.dirname(os.environ["DISTAG_LIBRARY"])
ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1")


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240,
                          **{"env": ENVIRONMENT, **options})
    return done.returncode, done.stdout, done.stderr


def run_python(*arguments, **options):
    return run(sys.executable, "-B", "-X", "dev", "-W", "error", *arguments, **options)


class Documents(unittest.TestCase):
    def test_every_public_name_has_a_document(self):
        silent = [name for name in distag.__all__ if not getattr(distag, name).__doc__]
        for kind in (distag.Tensor, distag.Worker, distag.Context, distag.RRef, distag.Future, distag.Mesh):
            silent += [f"{kind.__name__}.{name}" for name in vars(kind)
                       if not name.startswith("_") and not getattr(kind, name).__doc__
                       and not isinstance(getattr(kind, name), types.MemberDescriptorType)]
        self.assertEqual([name for name in silent if name not in ("CURRENT", "FOREVER", "OPEN_WORLD", "Spec")], [])


class Samples(unittest.TestCase):
    def test_digits_learns_as_the_program_in_c_does(self):
        code, out, err = run_python("-m", "distag.samples.digits", "--epochs", "2")
        self.assertEqual((code, err), (0, ""))
        distag_command = os.path.join(BUILD, "tools", "distag")
        if not os.path.exists(distag_command):
            self.assertRegex(out, r"epoch  2 of 2   loss 0\.\d+   held-out accuracy 0\.9\d+\n")
            return
        _, expected, _ = run(distag_command, "run", "-n", "3", os.path.join(BUILD, "samples", "04_digits"),
                             os.path.join(ROOT, "samples", "data", "digits.csv"), "2")
        self.assertEqual(out.split("\n")[:3], expected.replace("[0] ", "").split("\n")[:3])

    def test_sharded_trains_as_the_program_in_c_does(self):
        distag_command = os.path.join(BUILD, "tools", "distag")
        program = os.path.join(BUILD, "samples", "12_sharded")
        if not os.path.exists(distag_command) or not os.path.exists(program):
            self.skipTest("the command or the sample is not built")
        for form in ("fully", "both"):
            code, expected, err = run(distag_command, "run", "-n", "4", program, form)
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(run(distag_command, "run", "-n", "4", sys.executable, "-B", "-X", "dev", "-W", "error", "-m",
                                 "distag.samples.sharded", form), (0, expected, ""))

    def test_service_serves_until_it_is_asked_to_stop(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-B", "-m", "distag.samples.service", f"file://{folder}"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            with killed_when_late(server):
                self.assertEqual(server.stdout.readline(), "service serves\n")
                self.assertEqual(run(*command, "ask"), (0, "mean 3.0\nstopping\n", ""))
                self.assertEqual(server.communicate(), ("served 2 calls\n", None))
            self.assertEqual(server.returncode, 0)


class Installing(unittest.TestCase):
    def test_pip_installs_without_a_network(self):
        with tempfile.TemporaryDirectory() as folder:
            package = os.path.join(ROOT, "bindings", "python")
            code, _, err = run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target",
                               os.path.join(folder, "site"), package,
                               env=dict(ENVIRONMENT, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_CACHE_DIR="1"))
            self.assertEqual(code, 0, err)
            program = "import distag, os; print(distag.__version__, os.path.dirname(os.path.dirname(distag.__file__)))"
            code, out, _ = run_python("-c", program, cwd=folder,
                                      env=dict(ENVIRONMENT, PYTHONPATH=os.path.join(folder, "site")))
            self.assertEqual((code, out.split()), (0, [distag.__version__, os.path.join(folder, "site")]))
            self.assertTrue(os.path.exists(os.path.join(folder, "site", "distag", "samples", "digits.csv")))
        self.assertEqual([name for name in os.listdir(package) if name in ("build", "dist", "distag.egg-info")], [])


if __name__ == "__main__":
    unittest.main()
