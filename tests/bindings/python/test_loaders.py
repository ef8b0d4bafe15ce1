"""Loaders: batches of arrays, functions and iterators, on members that are threads of one process."""
import tempfile
import threading
import unittest

import distag
from distag import checkpoint, nn, optim
from support import group
from test_meshes import on_members

ROWS = [[float(row), -float(row)] for row in range(10)]
ORDER = [6, 9, 2, 0, 5, 1, 3, 4, 7, 8, 3, 0, 4, 6, 2, 7, 9, 8, 1, 5]  # of seed 1, for all releases
NAMES = ("a", "b", "c", "d")


def on_line(program, count):
    return on_members(program, names=NAMES[:count], shape=(-1,), axes=("data",))


def rows_of(loader):
    return [[int(row) for row in batch.gather()[:, 0].tolist()] for batch in loader]


class Pairs:
    """A data set as others write them."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, row):
        return ROWS[row]

    def __getitems__(self, rows):
        return {"x": [ROWS[row] for row in rows], "y": [2.0 * row for row in rows]}


class Loaders(unittest.TestCase):
    def test_rows_are_the_same_on_any_mesh(self):
        for count in (1, 2, 3, 4):
            for prefetch, concurrency in ((1, 1), (2, 1), (5, 3)):
                def program(worker, mesh):
                    loader = mesh.loader(ROWS, batch_rows=4, shuffle=True, seed=1, epochs=2, prefetch=prefetch,
                                         concurrency=concurrency)
                    self.assertEqual(len(loader), 6)
                    return rows_of(loader)

                expected = [ORDER[:4], ORDER[4:8], ORDER[8:10], ORDER[10:14], ORDER[14:18], ORDER[18:]]
                self.assertEqual(on_line(program, count), [expected] * count)

    def test_dicts_of_arrays_and_data_sets_are_sources(self):
        x = distag.tensor(ROWS)

        def program(worker, mesh):
            found = []
            for source in ({"x": x, "y": x[:, 0]}, Pairs()):
                with mesh.loader(source, batch_rows=5, specs={"x": ("data", None), "y": ("data",)}) as loader:
                    for batch in loader:
                        found.append((batch["x"].spec, batch["x"].gather()[:, 0].tolist(), batch["y"].shape))
            for batch in mesh.loader([x, x], batch_rows=10):
                found.append([part.shape for part in batch])
            return found

        first = [("('data', None)", [float(row) for row in range(begin, begin + 5)], (5,)) for begin in (0, 5)]
        self.assertEqual(on_line(program, 2), [first * 2 + [[(10, 2), (10, 2)]]] * 2)

    def test_only_batches_with_numbers_are_made_at_the_same_time(self):
        def program(worker, mesh):
            batches = [distag.full(float(number), (4, 1)) for number in range(9)]
            for source in (iter(batches), (batch for batch in batches), dict.fromkeys(range(9))):
                with self.assertRaisesRegex(distag.UsageError, "loader: .* concurrency=1"):
                    mesh.loader(source, concurrency=2)
            return [rows_of(mesh.loader(source, concurrency=3, prefetch=4))
                    for source in (batches, tuple(batches), lambda number: batches[number] if number < 9 else None)]

        self.assertEqual(on_line(program, 2), [[[[number] * 4 for number in range(9)]] * 3] * 2)

    def test_a_source_cannot_wait_for_its_own_loader(self):
        def program(worker, mesh):
            loaders = []
            with mesh.loader(lambda number: loaders[0].next()) as loader:
                loaders.append(loader)
                with self.assertRaisesRegex(distag.DistagError, "INVALID_STATE.*the source of this loader waits"):
                    loader.next()

        on_line(program, 1)

    def test_iterators_and_functions_give_batches(self):
        def program(worker, mesh):
            batches = [distag.full(float(number), (4, 1)) for number in range(3)]
            found = [rows_of(mesh.loader(source, mode=mode))
                     for mode in ("global", "root")
                     for source in (batches, iter(batches), lambda number: batches[number] if number < 3 else None)]
            own = [[[number + worker.rank]] for number in (0.0, 10.0)]
            found.append(rows_of(mesh.loader(own, mode="local")))
            loader = mesh.loader(batches)
            loader.next()
            found.append(rows_of(mesh.loader(batches, state=loader.state())))
            return found

        whole = [[number] * 4 for number in range(3)]
        self.assertEqual(on_line(program, 2), [[whole] * 6 + [[[0, 1], [10, 11]], whole[1:]]] * 2)

    def test_a_source_that_raises_is_told_on_all_members(self):
        def program(worker, mesh):
            def read(number):
                if number == 1 and worker.rank == 1:
                    raise ValueError("no such shard")
                return distag.full(1.0, (2,))

            loader = mesh.loader(read)
            loader.next()
            with self.assertRaisesRegex(distag.DistagError, "worker \"b\" \\(rank 1\\).*no such shard") as caught:
                loader.next()
            self.assertIsNone(loader.next())
            mesh.all_reduce(distag.tensor([1.0]))
            return caught.exception.origin_rank

        self.assertEqual(on_line(program, 2), [1, 1])

    def test_a_late_source_is_named_and_its_batch_comes(self):
        gate = threading.Event()

        def program(worker, mesh):
            def read(number):
                if worker.rank == 1:
                    gate.wait()
                return distag.full(float(number), (2, 1))

            with mesh.loader(read) as loader:
                with self.assertRaisesRegex(distag.DistagError, "rank 1"):
                    loader.next(timeout=0.2)
                mesh.all_reduce(distag.tensor([1.0]))
                gate.set()
                self.assertEqual(loader.next().gather().tolist(), [[0.0], [0.0]])
                self.assertGreaterEqual(loader.info().waited, 0.2)
                self.assertRegex(repr(loader), "<distag.Loader at batch 1 of \\?>")
                with self.assertRaises(TypeError):
                    len(loader)

        on_line(program, 2)

    def test_wrong_arguments_are_refused(self):
        both = {"a": ROWS, "b": ROWS}
        with group(names=NAMES[:1]) as (worker,), worker.mesh((-1,), ("data",)) as mesh:
            for source, options, words in ((ROWS, {"mode": "rows"}, "batch_rows"),
                                           (ROWS, {"mode": "all"}, "mode is one of"),
                                           (5, {"batch_rows": 4}, "len\\(\\)"), (5, {}, "a source is"),
                                           (ROWS, {"shuffle": True}, "mode \"rows\""),
                                           ({"a": ROWS, "b": ROWS[1:]}, {"batch_rows": 4}, "one number of rows"),
                                           (ROWS, {"batch_rows": 0}, "batch_rows is 0"),
                                           (ROWS, {"batch_rows": 4, "specs": ("model",)}, "no axis model"),
                           (both, {"batch_rows": 4, "specs": {"a": ("data", None), "b": 5}}, "specs \"b\": a spec is"),
                           (both, {"batch_rows": 4, "specs": {"a": 5, "b": ("data", None)}}, "specs \"a\": a spec is"),
                           (both, {"batch_rows": 4, "specs": {"a": ("data", None), "b": ("data", 1.5)}},
                            "specs \"b\": an item of a spec"),
                           (both, {"batch_rows": 4, "specs": {"a": ("data", None), "b": "a\0b"}},
                            "specs \"b\": spec: a text cannot"),
                                           (ROWS, {"batch_rows": 4, "state": {"next": 1}}, "no state of a loader")):
                with self.assertRaisesRegex(distag.UsageError, words):
                    mesh.loader(source, **options)

    def train(self, worker, mesh, steps, folder, state=None):
        model = nn.Linear(6, 3, dtype=distag.float64, seed=1 if state is None else 9)
        data = {"x": distag.randn(3, (20, 6), distag.float64), "y": distag.randn(4, (20, 3), distag.float64)}
        for parameter in model.parameters():
            mesh.shard(parameter, (None,) * parameter.ndim)
        adam = optim.Adam(worker, [model], lr=0.05)
        if state is not None:
            state = checkpoint.load(mesh, folder, {"model": model, "adam": adam})["loader"]
        loader = mesh.loader(data, batch_rows=6, shuffle=True, seed=5, epochs=distag.FOREVER, state=state)
        losses = []
        for batch in loader:
            with mesh.context() as context:
                loss = distag.mse_loss(model(batch["x"]), batch["y"])
                context.backward(loss)
                adam.step(context)
                losses.append(loss.gather().item())
            if len(losses) == steps:
                break
        checkpoint.save(mesh, folder, {"model": model, "adam": adam, "loader": loader.state()})
        return losses

    def test_training_goes_on_over_another_mesh(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = on_line(lambda worker, mesh: self.train(worker, mesh, 6, folder), 1)[0]
            begun = on_line(lambda worker, mesh: self.train(worker, mesh, 3, folder), 4)[0]
            for rest in on_line(lambda worker, mesh: self.train(worker, mesh, 3, folder, state=True), 3):
                for one, other in zip(begun + rest, alone, strict=True):
                    self.assertAlmostEqual(one, other, delta=1e-12 * other)


if __name__ == "__main__":
    unittest.main()
