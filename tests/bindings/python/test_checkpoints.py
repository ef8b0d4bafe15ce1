"""Checkpoints: any mesh to any mesh, files that anyone reads, damage, and members that are killed while they save."""
import itertools
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib
from unittest import mock

import distag
from distag import checkpoint, nn, optim
from support import killed_when_late
from test_meshes import on_members

NAMES = [f"worker{i}" for i in range(8)]
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))

# Two or more processes that save again and again, each save with its number in every element.
SAVER = """
import os, sys, time
import distag
from distag import checkpoint
folder, steps = sys.argv[1], int(sys.argv[2])
worker = distag.Worker().start()
mesh = worker.mesh((-1,), ("x",), timeout=240)
for number in range(int(sys.argv[3]), int(sys.argv[3]) + steps):
    values = {f"t{i}": mesh.shard(distag.full(number, (64, 300)), spec)
              for i, spec in enumerate(((None, None), ("x", None), (None, "x"), ("x", None)))}
    checkpoint.save(mesh, folder, {"number": number, "values": values})
    if worker.rank == 0:
        print(number, flush=True)
mesh.close()
worker.shutdown()
"""


def read_safetensors(path):
    """What anybody's reader does."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    assert (8 + size) % 8 == 0
    codes = {"F32": "f", "F64": "d", "I64": "q", "BOOL": "?"}
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = (entry["shape"], memoryview(data[begin:end]).cast(codes[entry["dtype"]]).tolist())
    return found


def write_safetensors(path, tensors):
    """{name: (dtype, shape, numbers)}, as others write them."""
    codes, header, data = {"F32": "f", "F64": "d", "I64": "q", "BOOL": "?", "F16": "e"}, {}, b""
    for name, (dtype, shape, numbers) in tensors.items():
        packed = struct.pack(f"<{len(numbers)}{codes[dtype]}", *numbers)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def numbers_in(value):
    """A saved state with the numbers of this member in place of its tensors."""
    if isinstance(value, dict):
        return {key: numbers_in(item) for key, item in value.items()}
    if isinstance(value, list):
        return [numbers_in(item) for item in value]
    return value.local().tolist() if isinstance(value, distag.Tensor) and value.spec else value


def random_spec(source, axes, ndim):
    items = [[] for _ in range(ndim)]
    for axis in source.sample(axes, len(axes)):
        place = source.randrange(ndim + 1)
        if place < ndim:
            items[place].append(axis)
    return tuple(tuple(item) if item else None for item in items)


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, True)

    def test_every_mesh_loads_what_any_other_saved(self):
        shapes = {"a": (5, 7), "b": (8,), "c": (3, 1, 4), "empty": (0, 3), "scalar": ()}
        whole = {name: distag.randn(i, shape, distag.float64) for i, (name, shape) in enumerate(shapes.items())}
        meshes = [(1,), (2,), (3,), (4,), (2, 2), (2, 3), (8,), (2, 2, 2)]
        source = random.Random(1)

        def specs(axes):
            return {name: random_spec(source, axes, len(shape)) for name, shape in shapes.items()}

        def sharded(mesh, given, make):
            return {name: mesh.shard(make(name), given[name]) for name in shapes}

        for saved_on, loaded_on in itertools.product(meshes, meshes):
            axes = {shape: [f"x{i}" for i in range(len(shape))] for shape in (saved_on, loaded_on)}
            first, second = specs(axes[saved_on]), specs(axes[loaded_on])

            def save(worker, mesh):
                values = sharded(mesh, first, lambda name: whole[name].clone())
                checkpoint.save(mesh, self.folder, {"values": values, "step": 3})

            def load(worker, mesh):
                values = sharded(mesh, second, lambda name: distag.zeros(shapes[name], distag.float64))
                loaded = checkpoint.load(mesh, self.folder, {"values": values})
                self.assertEqual(loaded["step"], 3)
                return {name: values[name].gather().tobytes() for name in shapes}

            size = {shape: NAMES[:distag.Mesh(shape).size] for shape in (saved_on, loaded_on)}
            on_members(save, names=size[saved_on], shape=saved_on, axes=axes[saved_on])
            expected = {name: tensor.tobytes() for name, tensor in whole.items()}
            for found in on_members(load, names=size[loaded_on], shape=loaded_on, axes=axes[loaded_on]):
                self.assertEqual(found, expected, (saved_on, first, loaded_on, second))
        alone = checkpoint.load(None, self.folder)["values"]
        self.assertEqual({name: tensor.tobytes() for name, tensor in alone.items()}, expected)

    def test_all_kinds_of_values_come_back(self):
        value = {"f32": distag.tensor([1.5, float("inf")]), "i64": distag.tensor([2**62, -3]),
                 "bool": distag.tensor([True, False]), "list": [1, 2.5, -0.0, float("inf"), "text \"x\"", None, True],
                 "bytes": b"\0\xff", "a/b~c": {"deep": [distag.tensor(7)]}}
        on_members(lambda worker, mesh: checkpoint.save(mesh, self.folder, value))
        found = checkpoint.load(None, self.folder)
        for name in ("f32", "i64", "bool"):
            self.assertEqual((found[name].tolist(), found[name].dtype), (value[name].tolist(), value[name].dtype))
        self.assertEqual((found["list"], found["bytes"]), (value["list"], value["bytes"]))
        self.assertEqual(str(found["list"][2]), "-0.0")
        self.assertEqual(found["a/b~c"]["deep"][0].item(), 7)

    def test_anybody_reads_the_files(self):
        def save(worker, mesh):
            x = mesh.shard(distag.arange(0, 12).reshape(4, 3), ("data", None))
            checkpoint.save(mesh, self.folder, {"x": x, "flag": distag.tensor(True)})

        on_members(save)
        found, rows = {}, {}
        for name in os.listdir(self.folder):
            if name.endswith(".safetensors"):
                found.update(read_safetensors(os.path.join(self.folder, name)))
        self.assertEqual(found.pop("flag"), ([], [True]))
        for name, (shape, numbers) in found.items():
            self.assertEqual(shape, [2, 3])
            rows[name] = numbers
        self.assertEqual(rows, {"x[0:2, 0:3]": [0.0, 1, 2, 3, 4, 5], "x[2:4, 0:3]": [6.0, 7, 8, 9, 10, 11]})
        with open(os.path.join(self.folder, "index.json"), encoding="utf-8") as file:
            box = json.load(file)["entries"]["x"]["boxes"][0]
        self.assertEqual(box["crc32"], [zlib.crc32(struct.pack("<6f", *range(6)))])

    def test_files_of_others_load_into_sharded_tensors(self):
        one, two = ("F32", [4, 2], [float(i) for i in range(8)]), ("I64", [3], [1, 2, 3])
        alone, many = os.path.join(self.folder, "alone"), os.path.join(self.folder, "many")
        os.mkdir(alone), os.mkdir(many)
        write_safetensors(os.path.join(alone, "model.safetensors"), {"layer.weight": one, "n": two})
        write_safetensors(os.path.join(many, "model-1.safetensors"), {"layer.weight": one})
        write_safetensors(os.path.join(many, "model-2.safetensors"), {"n": two})
        with open(os.path.join(many, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
            json.dump({"weight_map": {"layer.weight": "model-1.safetensors", "n": "model-2.safetensors"}}, file)

        def load(worker, mesh):
            for place in (alone, os.path.join(alone, "model.safetensors"), many):
                weight = mesh.shard(distag.zeros((4, 2)), ("data", "model"))
                rest = checkpoint.load(mesh, place, {"layer.weight": weight})
                self.assertEqual(weight.gather().tolist(), [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
                self.assertEqual(rest["n"].tolist(), [1, 2, 3])

        on_members(load)
        linked = os.path.join(self.folder, "linked")  # as in a cache of downloads
        os.mkdir(linked)
        for name in os.listdir(many):
            os.symlink(os.path.join(many, name), os.path.join(linked, name))
        for place in (linked, os.path.join(linked, next(name for name in os.listdir(many) if name.endswith("tensors")))):
            self.assertTrue(checkpoint.load(None, place))
        self.assertEqual(checkpoint.load(None, linked)["n"].tolist(), [1, 2, 3])
        write_safetensors(os.path.join(many, "model-2.safetensors"), {"m": two})  # older than the index
        with self.assertRaisesRegex(distag.DistagError, 'PROTOCOL.*"n" is not in "model-2.safetensors"'):
            checkpoint.load(None, many)
        with self.assertRaisesRegex(distag.UsageError, "name one of these"):
            os.mkdir(os.path.join(self.folder, "empty"))
            checkpoint.load(None, os.path.join(self.folder, "empty"))

    def test_an_entry_of_another_dtype_fails_where_it_is_asked_for(self):
        half = os.path.join(self.folder, "half.safetensors")
        write_safetensors(half, {"h": ("F16", [3], [1.0, 2.0, 3.0]), "n": ("I64", [2], [1, 2]),
                                 "w": ("F32", [4, 2], list(range(8)))})
        reason = "\"half.safetensors\": entry \"h\" is of dtype F16: F32, F64, I64 and BOOL are read"

        def load(worker, mesh):
            weight = distag.zeros((4, 2))
            if mesh is not None:
                mesh.shard(weight, ("data", None))
            rest = checkpoint.load(mesh, half, {"w": weight})
            numbers = weight if mesh is None else weight.gather()
            self.assertEqual(numbers.tolist(), [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
            self.assertEqual((rest["n"].tolist(), rest["h"].shape), ([1, 2], (3,)))
            with self.assertRaisesRegex(distag.UnsupportedError, reason):
                rest["h"].tolist()
            number = distag.zeros((2,), distag.int64)
            with self.assertRaisesRegex(distag.UnsupportedError, reason):
                checkpoint.load(mesh, half, {"n": number, "h": distag.zeros((3,))})
            self.assertEqual(number.tolist(), [0, 0])

        load(None, None)
        on_members(load)

    def train(self, worker, mesh, steps, specs, resume=None, keep=None):
        model = nn.Sequential(nn.Linear(6, 8, dtype=distag.float64, seed=1 if resume is None else 9), distag.tanh,
                              nn.Linear(8, 3, dtype=distag.float64, seed=2))
        x, target = distag.randn(3, (12, 6), distag.float64), distag.randn(4, (12, 3), distag.float64)
        if mesh is not None:
            for tensor, spec in zip([x, target, *model.parameters()], specs):
                mesh.shard(tensor, spec)
        adam = optim.Adam(worker, [model], lr=0.05)
        if resume is not None:
            checkpoint.load(mesh, resume, {"model": model, "adam": adam})
        losses = []
        for _ in range(steps):
            with distag.Context() if mesh is None else mesh.context() as context:
                loss = distag.mse_loss(model(x), target)
                context.backward(loss)
                adam.step(context)
                losses.append((loss if mesh is None else loss.gather()).item())
        if keep is not None:
            checkpoint.save(mesh, keep, {"model": model, "adam": adam})
        return losses

    def test_training_goes_on_over_another_mesh(self):
        first = [("data", None)] * 2 + [("model", None), ("model",), (None, "model"), (None,)]
        second = [(None, None)] * 2 + [("data", None), ("data",), ("data", None), ("data",)]
        alone = self.train(None, None, 6, None)
        begun = on_members(lambda worker, mesh: self.train(worker, mesh, 3, first, keep=self.folder), shape=(2, 2))[0]
        for rest in on_members(lambda worker, mesh: self.train(worker, mesh, 3, second, resume=self.folder),
                               names=NAMES[:3], shape=(3, 1)):
            for one, other in zip(begun + rest, alone, strict=True):
                self.assertAlmostEqual(one, other, delta=1e-12 * other)
        last = self.train(None, None, 3, None, resume=self.folder)
        self.assertAlmostEqual(last[2], alone[5], delta=1e-12)

    def test_a_save_beside_the_program_has_the_values_of_the_call(self):
        def program(worker, mesh):
            model = nn.Linear(6, 4, seed=1)
            for parameter in model.parameters():
                mesh.shard(parameter, ("data",) + (None,) * (parameter.ndim - 1))
            adam = optim.Adam(worker, [model])
            before = model.weight.gather().tolist()
            saved = checkpoint.save_async(mesh, self.folder, {"model": model, "adam": adam, "step": 1})
            for parameter in model.parameters():
                parameter.assign(distag.full(7.0))
            self.assertIsNone(saved.result())
            loaded = checkpoint.load_async(mesh, self.folder, {"model": model, "adam": adam}).result()
            self.assertEqual((loaded["step"], model.weight.gather().tolist()), (1, before))
            with self.assertRaisesRegex(distag.UsageError, "nowhere"):
                checkpoint.save_async(mesh, os.path.join(self.folder, "nowhere", "x"), {}).result()

        on_members(program, names=NAMES[:2], shape=(-1,), axes=("data",))

    def test_a_model_is_saved_with_all_of_it(self):
        def make(seed):
            net = nn.Module()
            net.layers = {"a": nn.Linear(4, 2, seed=seed)}
            net.tied, net.frozen = net.layers["a"].weight, distag.randn(seed, (4,))
            net.last = net.layers["a"](distag.ones((1, 4)))
            return net

        def numbers(net):
            return [tensor.gather().tolist() for tensor in net.state_dict().values()]

        def program(worker, mesh):
            rules = {"**.weight": (None, "x"), "frozen": ("x",)}
            net = distag.distribute_module(make(1 + worker.rank), mesh, rules)
            checkpoint.save(mesh, self.folder, {"net": net})
            other = distag.distribute_module(make(5), mesh, {})
            checkpoint.load(mesh, self.folder, {"net": other})
            third = distag.distribute_module(make(6), mesh, rules)
            checkpoint.load_async(mesh, self.folder, {"net": third}).result()
            return [numbers(each) for each in (net, other, third)]

        expected = [tensor.tolist() for tensor in make(1).state_dict().values()]
        self.assertEqual(len(expected), 3)
        self.assertEqual(on_members(program, names=NAMES[:2], shape=(2,), axes=("x",)), [[expected] * 3] * 2)

    def trained(self, kind, mesh, parameters=1, value=1.0):
        """Parameters and their optimizer after a step."""
        weights = [distag.full(value, (4,)) for _ in range(parameters)]
        for weight in weights:
            mesh.shard(weight, ("x",)).requires_grad_()
        optimizer = kind(None, weights, lr=0.1)
        with mesh.context() as context:
            context.backward(sum((weight * weight).sum() for weight in weights))
            optimizer.step(context)
        return weights, optimizer

    def test_after_a_load_that_fails_all_is_as_it_was(self):
        def program(worker, mesh):
            weights, adam = self.trained(optim.Adam, mesh)
            state = adam.save()
            saved = {"n": 1, "w": weights, "adam": adam}
            without = {key: item for key, item in state.items() if key != "settings"}
            moment = {**state["parameters"][0][0], "exp_avg": distag.ones((3,))}
            cases = [  # what is saved, what is loaded into: own weights and optimizer, and what is said
                (saved, optim.Adagrad, 1, "adam", 'of an optimizer adam, and this one is adagrad'),
                (saved, optim.Adam, 2, "adam", "was saved of 1 parameters, and this optimizer has 2"),
                ({"w": weights}, optim.Adam, 1, "adam", 'the checkpoint has no entry "adam"'),
                (saved, optim.Adam, 1, "n", 'the checkpoint has no entry "n/0"|"n" was saved as an int'),
                ({"w": weights, "adam": {"kind": "adam"}}, optim.Adam, 1, "adam", "was saved of no optimizer"),
                ({"w": weights, "adam": 3}, optim.Adam, 1, "adam", '"adam" was saved of no optimizer'),
                ({"w": weights, "adam": without}, optim.Adam, 1, "adam", "was saved of no optimizer"),
                ({"w": weights, "adam": {**state, "parameters": [[moment]]}}, optim.Adam, 1, "adam",
                 "with another shape"),
                ({"w": [distag.ones((5,))], "adam": adam}, optim.Adam, 1, "adam", "shape"),
                ({"adam": adam}, optim.Adam, 1, "adam", "NOT_FOUND"),
            ]
            cases += [({"w": weights, "adam": wrong}, optim.Adam, 1, "adam", text)
                      for wrong, text in self.refused_states(state)]
            told = []
            for number, (value, kind, count, key, text) in enumerate(cases):
                folder = os.path.join(self.folder, str(number))
                checkpoint.save(mesh, folder, value)
                own, optimizer = self.trained(kind, mesh, count, 5.0)
                before = [weight.gather().tolist() for weight in own], numbers_in(optimizer.save())
                into = {"w": own[:1], key: {"n": [optimizer]}.get(key, optimizer)}
                for load in (checkpoint.load, lambda *args: checkpoint.load_async(*args).result()):
                    with self.assertRaisesRegex(distag.DistagError, text, msg=number):
                        load(mesh, folder, into)
                    after = [weight.gather().tolist() for weight in own], numbers_in(optimizer.save())
                    self.assertEqual(after, before, number)
                told.append(number)
            own, optimizer = self.trained(optim.Adam, mesh, 1, 5.0)  # and what fits is loaded
            checkpoint.save(mesh, self.folder, saved)
            loaded = checkpoint.load(mesh, self.folder, {"w": own, "adam": optimizer})
            self.assertEqual((loaded["n"], own[0].gather().tolist()), (1, weights[0].gather().tolist()))
            self.assertEqual(numbers_in(optimizer.save()), numbers_in(adam.save()))
            return told

        expected = list(range(25))
        self.assertEqual(on_members(program, names=NAMES[:2], shape=(2,), axes=("x",)), [expected] * 2)

    @staticmethod
    def refused_states(state):
        """States of an Adam with one parameter that only the optimizer refuses, and what it says."""
        settings, (moments,) = state["settings"], state["parameters"][0]

        def of(**changed):
            return [[{**moments, **changed}]]

        def without(key, items):
            return {name: item for name, item in items.items() if name != key}

        for changed, text in (({**settings, "lr": -1.0}, "lr is -1"), (without("lr", settings), 'no setting "lr"'),
                              ({**settings, "lr": "x"}, "text, not an? float64"),
                              ({**settings, "zzz": 1.0}, 'no setting "zzz"')):
            yield {**state, "settings": changed}, text
        for changed, text in (([[without("exp_avg_sq", moments)]], 'has no "exp_avg_sq"'),
                              (of(zzz=moments["exp_avg"]), 'keeps no "zzz"'),
                              (of(exp_avg=3.0), "float64, not an? tensor"),
                              (of(exp_avg=distag.zeros((4,), distag.int64)), r"is int64\[4\]"),
                              (of(exp_avg=distag.zeros((4,), distag.float64)), r"is float64\[4\]"),
                              (of(step="x"), "text, not an? int64"), (of(step=-1), 'needs a "step" between 0'),
                              ([[moments, moments]], "has 2 tensors"), ([[]], "has 0 tensors"),
                              ([["x"]], "text, not an? map"), ([None], "null, not an? list")):
            yield {**state, "parameters": changed}, text

    def test_a_member_whose_optimizer_cannot_be_loaded_fails_the_load_of_all(self):
        class Full(optim.Adam):
            """Cannot be loaded, unless its own state is put back."""

            __slots__ = ()

            def load(self, state, timeout=None):
                if state["settings"]["lr"] != 0.5:
                    raise MemoryError("no room for moments")
                super().load(state, timeout)

        def program(worker, mesh):
            weights, adam = self.trained(optim.Adam, mesh)
            checkpoint.save(mesh, self.folder, {"w": weights, "adam": [adam, adam]})
            told = []
            for kind, more in ((optim.Adagrad, []), (optim.Adam, [distag.ones((4,))]), (Full, [])):
                own, optimizer = self.trained(optim.Adam, mesh, 1, 5.0)
                if worker.rank == 1:
                    optimizer = kind(None, own + more)
                optimizer.set(lr=0.5)
                before = own[0].gather().tolist()
                into = {"w": own, "adam": [optimizer, optim.Adam(None, own)]}
                for load in (checkpoint.load, lambda *args: checkpoint.load_async(*args).result()):
                    try:
                        load(mesh, self.folder, into, 60)
                    except (distag.DistagError, MemoryError) as failure:
                        told.append((str(failure), getattr(failure, "origin_rank", None)))
                    self.assertEqual((own[0].gather().tolist(), optimizer.save()["settings"]["lr"]), (before, 0.5))
            return told

        found = on_members(program, names=NAMES[:2], shape=(2,), axes=("x",))
        self.assertEqual([len(told) for told in found], [6, 6])
        for one, other in zip(*found):
            self.assertEqual(one[1], 1, one)
            self.assertIn("load: the optimizers of rank 1 cannot be loaded: ", one[0])
            self.assertTrue(one[0].endswith(other[0].removeprefix("INVALID_ARGUMENT: ")), (one, other))

    def test_a_save_that_comes_within_a_load_and_does_not_fit_leaves_the_optimizers_as_they_were(self):
        def program(worker, mesh):
            (weight,), adam = self.trained(optim.Adam, mesh)
            (own,), optimizer = self.trained(optim.Adam, mesh, 1, 5.0)
            before = numbers_in(optimizer.save())
            load_optimizers = checkpoint._load_optimizers
            later = [{"w": weight, "adam": {**adam.save(), "settings": {"lr": -1.0}}}]

            def save_and_load(pairs):
                if later:
                    checkpoint.save(mesh, self.folder, later.pop())
                load_optimizers(pairs)

            checkpoint.save(mesh, self.folder, {"w": weight, "adam": adam})
            with mock.patch.object(checkpoint, "_load_optimizers", save_and_load):
                with self.assertRaisesRegex(distag.UsageError, "(lr is -1|no setting).*; the tensors .* new elements"):
                    checkpoint.load(mesh, self.folder, {"w": own, "adam": optimizer})
            self.assertFalse(later)
            self.assertEqual(own.gather().tolist(), weight.gather().tolist())
            self.assertEqual(numbers_in(optimizer.save()), before)

        on_members(program, names=NAMES[:1], shape=(1,), axes=("x",))

    def test_a_load_that_has_failed_writes_nothing_when_it_is_asked_again(self):
        def program(worker, mesh):
            (weight,), adam = self.trained(optim.Adam, mesh)
            (own,), optimizer = self.trained(optim.Adam, mesh, 1, 5.0)
            checkpoint.save(mesh, self.folder, {"w": weight, "adam": adam})
            before = numbers_in(optimizer.save())
            loading = checkpoint.load_async(mesh, self.folder, {"w": own, "adam": optimizer})
            failure = distag.UsageError("too late", 10, 3, True)
            with mock.patch.object(checkpoint, "_load_optimizers", side_effect=failure) as load_optimizers:
                for value in (9.0, 10.0):
                    with self.assertRaisesRegex(distag.UsageError, "too late; the tensors .* new elements") as caught:
                        loading.result()
                    self.assertEqual((caught.exception.origin_rank, caught.exception.may_have_run), (3, True))
                    own.assign(value)
                self.assertEqual(load_optimizers.call_count, 1)
            self.assertEqual(own.gather().tolist(), [10.0] * 4)
            self.assertEqual(numbers_in(optimizer.save()), before)
            with self.assertRaisesRegex(distag.UsageError, "too late"):
                loading.result()
            self.assertEqual(own.gather().tolist(), [10.0] * 4)

        on_members(program, names=NAMES[:1], shape=(1,), axes=("x",))

    def test_an_optimizer_alone_is_saved_and_loaded(self):
        def program(worker, mesh):
            _, adam = self.trained(optim.Adam, mesh)
            _, other = self.trained(optim.Adam, mesh, 1, 7.0)
            checkpoint.save(mesh, self.folder, adam)
            checkpoint.load(mesh, self.folder, other)
            self.assertEqual(numbers_in(other.save()), numbers_in(adam.save()))

        on_members(program, names=NAMES[:2], shape=(2,), axes=("x",))

    def test_wrong_arguments_are_errors_of_distag(self):
        for wrong in (lambda: checkpoint.save(None, self.folder, {}), lambda: checkpoint.save("m", self.folder, {}),
                      lambda: checkpoint.save_async(3, self.folder, {}),
                      lambda: checkpoint.load_async(None, self.folder), lambda: checkpoint.load("m", self.folder),
                      lambda: checkpoint.load(None, 3), lambda: checkpoint.load(None, b"folder")):
            with self.assertRaisesRegex(distag.UsageError, "is wanted, not (an? |None)"):
                wrong()

    def test_an_optimizer_loads_once_however_often_the_result_is_asked_for(self):
        def program(worker, mesh):
            weight = mesh.shard(distag.full(1.0, (4,)), ("data",)).requires_grad_()
            adam = optim.Adam(worker, [weight], lr=0.1)

            def step():
                with mesh.context() as context:
                    context.backward((weight * weight).sum())
                    adam.step(context)
                return numbers_in(adam.save())

            step()
            checkpoint.save(mesh, self.folder, {"adam": adam})
            future = checkpoint.load_async(mesh, self.folder, {"adam": adam})
            future.wait()
            stepped = step()
            if worker.rank == 0:  # alone: nothing is collective any more
                self.assertIs(future.result(), future.result())
            self.assertEqual(numbers_in(adam.save()), stepped)

        on_members(program, names=NAMES[:2], shape=(-1,), axes=("data",))

    def test_damage_names_file_and_entry(self):
        value = {"w": distag.randn(1, (100, 30)), "b": distag.tensor([True, False] * 50), "n": 3}
        on_members(lambda worker, mesh: checkpoint.save(mesh, self.folder, value), names=NAMES[:2], shape=(2,),
                   axes=("x",))
        expected = {name: value[name].tobytes() for name in ("w", "b")}
        names = sorted(os.listdir(self.folder))
        source = random.Random(3)
        counts = {"noticed": 0, "not read": 0}
        for number in range(int(os.environ.get("DISTAG_FLIPS", "300"))):
            path = os.path.join(self.folder, source.choice(names))
            with open(path, "rb") as file:
                good = file.read()
            place = source.randrange(len(good))
            flipped = bytes([good[place] ^ (1 << source.randrange(8))])
            bad = good[:place] if number % 4 == 0 else good[:place] + flipped + good[place + 1:]
            with open(path, "wb") as file:
                file.write(bad)
            into = {name: distag.zeros(value[name].shape, value[name].dtype) for name in expected}
            try:
                checkpoint.load(None, self.folder, into)
                counts["not read"] += 1
                self.assertEqual({name: into[name].tobytes() for name in expected}, expected, path)
            except distag.DistagError as failure:
                counts["noticed"] += 1
                self.assertEqual(failure.name, "PROTOCOL", failure)
                self.assertIn(os.path.basename(path), failure.message)
                self.assertEqual([set(into[name].tobytes()) for name in expected], [{0}, {0}])  # as they were
            with open(path, "wb") as file:
                file.write(good)
        self.assertEqual(counts["not read"], 0)

    def test_links_devices_and_names_with_folders_are_refused(self):
        on_members(lambda worker, mesh: checkpoint.save(mesh, self.folder, {"w": distag.ones((2,))}), names=NAMES[:1],
                   shape=(1,), axes=("x",))
        shard = next(name for name in os.listdir(self.folder) if name.startswith("shard"))
        path = os.path.join(self.folder, shard)
        os.rename(path, path + ".moved")
        os.symlink(path + ".moved", path)
        with self.assertRaisesRegex(distag.DistagError, "symbolic link"):
            checkpoint.load(None, self.folder)
        os.unlink(path)
        os.mkfifo(path)
        with self.assertRaisesRegex(distag.DistagError, "no regular file"):
            checkpoint.load(None, self.folder)
        os.unlink(path)
        with self.assertRaisesRegex(distag.DistagError, "NOT_FOUND"):
            checkpoint.load(None, self.folder)


class Processes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.saves = os.path.join(self.folder, "saves")

    def start(self, count, steps, first, folders=None, program=SAVER):
        rendezvous = tempfile.mkdtemp(dir=self.folder)
        environment = dict(os.environ, WORLD_SIZE=str(count), OPENBLAS_NUM_THREADS="1",
                           DISTAG_RENDEZVOUS=f"file://{rendezvous}")
        command = [sys.executable, "-B", "-c", program, self.saves, str(steps), str(first)]
        return [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 cwd=folders and folders[rank], env=dict(environment, RANK=str(rank)))
                for rank in range(count)]

    def check_whole(self):
        found = checkpoint.load(None, self.saves)
        for tensor in found["values"].values():
            self.assertEqual({number for row in tensor.tolist() for number in row}, {float(found["number"])})
        return found["number"]

    def end(self, members):
        for member in members:
            member.kill()
            member.communicate()

    def test_after_a_kill_at_any_moment_a_load_finds_one_whole_checkpoint(self):
        source = random.Random(int(os.environ.get("DISTAG_SEED", "5")))
        first, last = 0, -1
        for number in range(int(os.environ.get("DISTAG_KILLS", "6"))):
            members = self.start(2, 10_000, first)
            with killed_when_late(members[0]):
                self.assertEqual(members[0].stdout.readline(), f"{first}\n")
                time.sleep(source.uniform(0, 0.06))  # a random moment of the saves that follow
                victims = source.choice([members[:1], members[1:], members])
                for victim in victims:
                    victim.send_signal(signal.SIGKILL)
                self.end(members)
            found = self.check_whole()
            self.assertGreaterEqual(found, max(first, last))
            last, first = found, found + 1
        members = self.start(2, 1, first)
        self.assertEqual([member.wait(120) for member in members], [0, 0])
        self.end(members)
        self.assertEqual(self.check_whole(), first)
        self.assertEqual(len(os.listdir(self.saves)), 3)  # no leftover

    def test_loads_beside_saves_find_one_whole_checkpoint(self):
        members = self.start(2, 60, 0)
        with killed_when_late(members[0]):
            self.assertEqual(members[0].stdout.readline(), "0\n")
            found = [self.check_whole()]
            while members[0].poll() is None:
                found.append(self.check_whole())
        self.end(members)
        self.assertEqual((found, self.check_whole()), (sorted(found), 59))

    def test_a_member_that_cannot_write_fails_the_save_of_all_and_the_old_one_stays(self):
        program = """
import os, resource, signal, sys
import distag
from distag import checkpoint
worker = distag.Worker().start()
mesh = worker.mesh((-1,), ("x",), timeout=240)
x = mesh.shard(distag.ones((4, 100_000)), ("x", None))
checkpoint.save(mesh, sys.argv[1], {"number": 1, "values": {"x": x}})
if worker.rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    checkpoint.save(mesh, sys.argv[1], {"number": 2, "values": {"x": x * 2}})
except distag.DistagError as failure:
    print(failure.name, failure.origin_rank, "ulimit" in failure.message or "limit" in failure.message)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(mesh.all_reduce(distag.tensor([1.0])).item())  # the mesh goes on
mesh.close()
worker.shutdown()
"""
        members = self.start(2, 0, 0, program=program)
        for member in members:
            self.assertEqual(member.communicate(timeout=240), ("INVALID_STATE 1 True\n2.0\n", ""))
        self.assertEqual(self.check_whole(), 1)
        self.assertEqual(len(os.listdir(self.saves)), 3)

    def test_a_folder_that_vanishes_or_is_a_file_is_named(self):
        def program(worker, mesh):
            failures = []
            for place in (os.path.join(self.folder, "no", "parent"), os.path.join(self.folder, "file")):
                with self.assertRaises(distag.UsageError) as caught:
                    checkpoint.save(mesh, place, {"x": distag.ones((2,))})
                failure = caught.exception
                failures.append((failure.name, failure.origin_rank, place in failure.message))
            return failures, mesh.all_reduce(distag.tensor([1.0])).item()

        with open(os.path.join(self.folder, "file"), "w", encoding="utf-8"):
            pass
        self.assertEqual(on_members(program, names=NAMES[:2], shape=(2,), axes=("x",)),
                         [([("INVALID_STATE", 0, True)] * 2, 2.0)] * 2)

    def test_names_of_others_stay_and_leftovers_of_ours_go(self):
        os.mkdir(self.saves)
        ours = [f"shard-0123456789abcdef-{i:05}-of-00002.safetensors" for i in range(2)]
        ours.append("index.json.0123456789abcdef")
        others = ["model.safetensors", "shard-1-2.safetensors", "index.json.bak", "notes.txt"]
        for name in ours + others:
            with open(os.path.join(self.saves, name), "w", encoding="utf-8"):
                pass
        on_members(lambda worker, mesh: checkpoint.save(mesh, self.saves, {"x": distag.ones((2,))}), names=NAMES[:1],
                   shape=(1,), axes=("x",))
        left = set(os.listdir(self.saves))
        self.assertEqual((left & set(ours), set(others) - left), (set(), set()))

    def test_members_that_save_other_values_learn_it(self):
        def program(worker, mesh):
            with self.assertRaises(distag.DistagError) as caught:
                checkpoint.save(mesh, self.saves, {"x": distag.ones((2 + worker.rank,))})
            return caught.exception.name, '"x" = float32[3]' in caught.exception.message

        self.assertEqual(on_members(program, names=NAMES[:2], shape=(2,), axes=("x",)), [("DIVERGED", True)] * 2)
        self.assertFalse(os.path.exists(self.saves))

    def test_odd_names_are_kept(self):
        value = {"a/b[0:1]": distag.ones((1,)), "x" * 10_000: distag.ones((1,)), "": distag.ones((1,)),
                 "ünï": {"": distag.zeros(())}}
        on_members(lambda worker, mesh: checkpoint.save(mesh, self.saves, value), names=NAMES[:2], shape=(2,),
                   axes=("x",))
        self.assertEqual({key: type(item) for key, item in checkpoint.load(None, self.saves).items()},
                         {key: type(item) for key, item in value.items()})

    def test_what_was_not_read_stays_readable_after_the_next_save(self):
        def save(number):
            on_members(lambda worker, mesh: checkpoint.save(mesh, self.saves, {"x": distag.full(number, (3,))}),
                       names=NAMES[:1], shape=(1,), axes=("x",))

        save(1)
        first = checkpoint.load(None, self.saves)["x"]
        self.assertTrue(first.is_deferred)
        save(2)
        self.assertEqual((first.tolist(), checkpoint.load(None, self.saves)["x"].tolist()), ([1.0] * 3, [2.0] * 3))

    def test_ten_thousand_tensors(self):
        value = {f"t{i}": distag.full(i, (1,)) for i in range(10_000)}
        on_members(lambda worker, mesh: checkpoint.save(mesh, self.saves, value), names=NAMES[:2], shape=(2,),
                   axes=("x",))
        found = checkpoint.load(None, self.saves)
        self.assertEqual((len(found), found["t9999"].item()), (10_000, 9999.0))

    def test_a_folder_that_not_all_share_is_named(self):
        places = [os.path.join(self.folder, name) for name in ("a", "b")]
        for place in places:
            os.mkdir(place)
            os.mkdir(os.path.join(place, "here"))
        self.saves = "here"
        members = self.start(2, 1, 0, places)
        for member in members:
            _, err = member.communicate(timeout=240)
            self.assertIn("all members need the same folder", err)
            self.assertIn("INVALID_STATE", err)
        self.assertEqual([os.listdir(os.path.join(place, "here")) for place in places], [[], []])


if __name__ == "__main__":
    unittest.main()
