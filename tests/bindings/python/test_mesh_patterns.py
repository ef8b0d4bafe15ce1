"""The patterns of docs/spmd.md: each row of its table has a program that runs here, against one process."""
import os
import re
import unittest

import distag
from distag import nn, optim
from test_meshes import on_members

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


def random(seed, *shape):
    return distag.randn(seed, shape, distag.float64) * 0.5


class Alone:
    """What a program of one process has in the place of a mesh."""

    @staticmethod
    def shard(tensor, spec):
        return tensor

    context = distag.Context


def trained(where, parameters, forward, steps=3, passes=1):
    """The losses of some steps. `parameters` are (tensor, spec); forward(parameters) gives the losses of the passes."""
    weights = [where.shard(tensor, spec).requires_grad_() for tensor, spec in parameters]
    adam = optim.Adam(None, weights, lr=0.05)
    losses = []
    for _ in range(steps):
        with where.context() as context:
            for number in range(passes):
                loss = forward(number, *weights)
                context.backward(loss)
                losses.append((loss if where is Alone else loss.gather()).item())
            adam.step(context)
    return losses


class Patterns(unittest.TestCase):
    def same_as_alone(self, program, **options):
        """A program of (where) has the losses of one process on all members; the counters of the mesh."""
        alone = program(Alone)

        def on_mesh(worker, mesh):
            return program(mesh), mesh.stats()

        results = on_members(on_mesh, hidden_moves="refuse", **options)
        for losses, _ in results:
            for one, other in zip(losses, alone, strict=True):
                self.assertAlmostEqual(one, other, delta=1e-12 * max(1, abs(other)))
        return results[0][1]

    def block(self, batch, first, second, between=None, before=None):
        """Two linear layers, as a program of (where)."""
        def program(where):
            x, target = where.shard(random(1, 8, 4, 6), batch), where.shard(random(2, 8, 4, 6), batch)

            def forward(number, w1, w2):
                given = x if before is None or where is Alone else x.redistribute(before)
                y = distag.linear(distag.linear(given, w1).tanh(), w2)
                if between is not None and where is not Alone:
                    y = y.redistribute(between)
                return distag.mse_loss(y, target)

            return trained(where, [(random(3, 8, 6), first), (random(4, 6, 8), second)], forward)

        return program

    def test_data_parallel(self):
        stats = self.same_as_alone(self.block((("data", "model"), None, None), (None, None), (None, None)))
        self.assertEqual((stats["all_gathers"], stats["hidden_moves"]), (0, 0))

    def test_sharded_parameters(self):
        spec = (("data", "model"), None)
        stats = self.same_as_alone(self.block((("data", "model"), None, None), spec, spec))
        self.assertGreater(stats["all_gathers"], 0)
        self.assertGreater(stats["reduce_scatters"], 0)

    def test_tensor_parallel(self):
        stats = self.same_as_alone(self.block(("data", None, None), ("model", None), (None, "model")))
        self.assertEqual((stats["all_gathers"], stats["moves"]), (0, 0))

    def test_sequence_parallel(self):
        stats = self.same_as_alone(self.block(("data", "model", None), ("model", None), (None, "model"),
                                              ("data", "model", None), ("data", None, None)))
        self.assertGreater(stats["reduce_scatters"], 0)
        self.assertGreater(stats["all_gathers"], 0)

    def test_two_axes_of_a_hybrid_mesh(self):
        self.same_as_alone(self.block(("data", None, None), ("model", "data"), ("data", "model")), shape=(1, 2),
                           outer_shape=(2, 1), granules=[0, 0, 1, 1], ranks=[0, 1, 2, 3])

    def test_vocabulary_parallel(self):
        def program(where):
            words = where.shard(distag.tensor([3, 0, 7, 5]), ("data",))
            classes = where.shard(distag.tensor([1, 6, 2, 7]), ("data",))
            return trained(where, [(random(1, 8, 5), ("model", None)), (random(2, 8, 5), ("model", None))],
                           lambda number, table, last: distag.cross_entropy(
                               distag.linear(distag.embedding(words, table), last), classes))

        self.same_as_alone(program)

    def test_gradients_add_up_over_passes(self):
        def program(where):
            batches = [where.shard(random(10 + number, 4, 6), ("data", None)) for number in range(3)]
            return trained(where, [(random(1, 5, 6), ("model", None))],
                           lambda number, weight: distag.linear(batches[number], weight).tanh().sum(), passes=3)

        self.same_as_alone(program)

    def test_a_manual_region(self):
        def program(worker, mesh):
            x = mesh.shard(random(1, 4, 6), ("data", None)).requires_grad_()
            with mesh.context() as context:
                own = x.local()
                context.backward(distag.from_local(own * own, mesh, ("data", None)).sum())
                return context.gradient(x).gather().tolist()

        self.assertEqual(on_members(program), [(random(1, 4, 6) * 2).tolist()] * 4)

    def test_one_program_for_any_number_of_members(self):
        def program(worker, mesh):
            x = mesh.shard(distag.arange(0, 12, dtype=distag.float64), ("data",))
            return mesh.shape["data"], x.sum().gather().item()

        for count in (1, 2, 3, 4):
            self.assertEqual(on_members(program, names=[f"worker{i}" for i in range(count)], shape=(-1, 1)),
                             [(count, 66.0)] * count)

    def test_a_large_tensor_is_distributed_without_being_made(self):
        def program(worker, mesh):
            big = distag.deferred((100_000, 88), init="randn", seed=1)
            distag.distribute_tensor(big, mesh, [distag.Shard(0)])
            return big.spec, big.local().shape

        self.assertEqual(on_members(program, shape=(4, 1)), [("('data', None)", (25_000, 88))] * 4)

    def test_an_annotated_activation(self):
        def annotate(x, ranks, sizes, names, spec):
            return distag.apply("mark_sharding", [x], {"device_ids": ranks, "mesh_shape": sizes, "axis_names": names,
                                                       "partition_spec": spec})[0].spec

        def program(worker, mesh):
            x = mesh.shard(random(1, 4, 4), ("data", None))
            with self.assertRaisesRegex(distag.UsageError, "3"):  # three sizes and two names
                annotate(x, mesh.ranks, [2, 1, 2], "('data', 'model')", "('data', 'model')")
            return annotate(x, mesh.ranks, [2, 2], "('data', 'model')", "('data', 'model')")

        self.assertEqual(on_members(program), ["('data', 'model')"] * 4)


def rows():
    """The rows of the table: the pattern, and what its last column names."""
    with open(os.path.join(ROOT, "docs", "spmd.md"), encoding="utf-8") as file:
        section = file.read().partition("\n## Patterns\n")[2].partition("\n## ")[0]
    lines = [line for line in section.split("\n") if line.startswith("|") and not re.match(r"\| pattern \||\|-", line)]
    return [(cells[1].strip(), cells[-2].strip()) for cells in (line.split("|") for line in lines)]


class Table(unittest.TestCase):
    def test_each_row_has_a_program_that_runs(self):
        table = rows()
        self.assertGreaterEqual(len(table), 22)
        for name, program in table:
            found = re.fullmatch(r"`(\S+)`(?:: (\w+\.\w+))?", program)
            self.assertIsNotNone(found, name)
            path, test = found.groups()
            self.assertTrue(os.path.exists(os.path.join(ROOT, path)), name)
            if test is None:  # a sample, whose output tests/samples checks
                sample = os.path.splitext(os.path.basename(path))[0]
                self.assertTrue(os.path.exists(os.path.join(ROOT, "tests", "samples", sample + ".expected")), name)
                continue
            module = os.path.splitext(os.path.basename(path))[0]
            result = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromName(f"{module}.{test}").run(result)
            self.assertTrue(result.wasSuccessful() and result.testsRun == 1, (name, result.errors, result.failures))


if __name__ == "__main__":
    unittest.main()
