"""Wrong arguments of meshes, loaders, plans and checkpoints: each function names the argument that is wrong, in an
error of distag or a TypeError. No wrong argument ends in an AttributeError, in a KeyError or in ctypes."""
import contextlib
import inspect
import re
import tempfile
import unittest

import distag
from distag import checkpoint, dtensor, nn, optim

try:
    import numpy
except ImportError:
    numpy = None

ARRAYS = () if numpy is None else (numpy.zeros(2), numpy.array([[1, 2]]))  # which have __index__, and fail in it
NO_INTEGERS = (2**70, 1.5, "wrong", {}, *ARRAYS)
NO_FLAGS = (None, -1, 7, 0, 1, 1.5, "wrong", {}, *ARRAYS)
WRONG = (None, True, -1, 7, float("nan"), "", "a\0b", b"bytes", (), [], ("x",), ["x", 3], {"x": 3}, {3: "x"}, object(),
         object, len, 1j, *NO_INTEGERS)


class Table:
    """Functions with arguments that are right, on a mesh of one worker. What a call takes is made anew for each."""

    def __init__(self, worker, mesh, folder):
        self.worker, self.mesh, self.folder = worker, mesh, folder
        checkpoint.save(mesh, folder, {"w": distag.ones((4,))})

    def plain(self):
        return distag.ones((4, 2))

    def sharded(self):
        return self.mesh.shard(self.plain(), ("x", None))

    def loader(self):
        return self.mesh.loader(self.plain(), batch_rows=2)

    def plan(self):
        return distag.Plan(self.mesh, {"w": self.plain()}, {"w": ("x", None)})

    def module(self):
        return nn.Linear(4, 4)

    def rows(self):
        worker, mesh, line = self.worker, self.mesh, distag.Mesh((2, 2), ("a", "b"))
        module = self.module
        yield "worker.mesh", worker.mesh, lambda: {"shape": (1, 1), "axes": ("a", "b"), "ranks": [0], "timeout": 9}
        for name, value in {"outer_shape": (1, 1), "granules": [0], "name": "m", "hidden_moves": "log",
                            "keep_gathered": True, "check_replicas": True, "bucket_bytes": 9}.items():
            yield "worker.mesh", worker.mesh, lambda name=name, value=value: {
                "shape": (1, 1), "axes": ("a", "b"), name: value}
        yield "Mesh", distag.Mesh, lambda: {"shape": (1, 2), "axes": ("a", "b"), "ranks": [0, 1], "worker": None}
        yield "HybridMesh", distag.HybridMesh, lambda: {
            "worker": None, "ici_mesh_shape": (1, 2), "dcn_mesh_shape": (2, 1), "axis_names": ("a", "b"),
            "granules": [0, 0, 1, 1], "ranks": range(4)}
        yield "mesh.line", mesh.line, lambda: {"name": "line"}
        yield "mesh.box", line.box, lambda: {"spec": ("a", None), "shape": (4, 4), "position": 1}
        yield "mesh.spec", line.spec, lambda: {"spec": ("a", None), "ndim": 2, "form": "hlo"}
        yield "mesh.visualize", line.visualize, lambda: {"spec": ("a", None), "shape": (4, 4)}
        yield "visualize_sharding", distag.visualize_sharding, lambda: {
            "spec": ("a", None), "shape": (4, 4), "mesh": line, "format": "text", "label": "CPU", "width": 40,
            "color": False, "dims": (0, 1)}
        yield "visualize_tensor_sharding", distag.visualize_tensor_sharding, lambda: {"tensor": self.sharded()}
        yield "mesh.shard", mesh.shard, lambda: {"tensor": self.plain(), "spec": ("x", None), "source_rank": -1}
        yield "mark_sharding", distag.mark_sharding, lambda: {
            "tensor": self.plain(), "mesh": mesh, "spec": ("x", None), "source_rank": -1}
        yield "distribute_tensor", distag.distribute_tensor, lambda: {
            "tensor": self.plain(), "mesh": mesh, "placements": [distag.Shard(0), distag.Replicate()],
            "src_data_rank": 0}
        yield "from_local", distag.from_local, lambda: {
            "local": self.plain(), "mesh": mesh, "spec": ("x", None), "shape": (4, 2), "gradient_spec": (None, None)}
        yield "deferred", distag.deferred, lambda: {
            "shape": (4,), "dtype": distag.float32, "init": "randn", "seed": 1, "scale": 1.0, "shift": 0.0}
        yield "deferred", distag.deferred, lambda: {"shape": (4,), "source": lambda offset, extent: [0.0] * extent[0]}
        yield "local", self.sharded().local, lambda: {"gradient_spec": (None, None)}
        yield "to_local", self.sharded().to_local, lambda: {"grad_placements": (None, None)}
        yield "gather", self.sharded().gather, lambda: {"rank": 0, "timeout": 9}
        yield "gather_async", self.sharded().gather_async, lambda: {"rank": 0, "timeout": 9}
        yield "redistribute", self.sharded().redistribute, lambda: {
            "spec": (None, None), "gradient": True, "keep": True}
        yield "redistribute", self.sharded().redistribute, lambda: {"placements": (None, None)}
        for name, more in {"all_reduce": {"op": "sum"}, "all_gather": {"dim": 0}, "reduce_scatter": {
                "dim": 0, "op": "sum"}, "all_to_all": {"dim": 0, "dim_to": 1}, "broadcast": {"root": 0}, "reduce": {
                "root": 0, "op": "sum"}, "permute": {"shift": 1}}.items():
            for function in (name, name + "_async"):
                yield "mesh." + function, getattr(mesh, function), lambda more=more: {
                    "x": self.plain(), "axes": ("x",), "timeout": 9, **more}
        yield "mesh.loader", mesh.loader, lambda: {
            "source": self.plain(), "batch_rows": 2, "specs": ("x", None), "mode": "rows", "shuffle": True, "seed": 1,
            "epochs": 2, "drop_last": True, "prefetch": 2, "concurrency": 1, "timeout": 9}
        yield "mesh.loader", mesh.loader, lambda: {
            "source": {"a": self.plain()}, "batch_rows": 2, "specs": {"a": ("x", None)}, "state": None}
        yield "mesh.loader", mesh.loader, lambda: {
            "source": [self.plain()], "mode": "global", "specs": None, "prefetch": 1, "concurrency": 1}
        yield "Loader", distag.Loader, lambda: {"mesh": mesh, "source": self.plain(), "batch_rows": 2}
        yield "loader.next", self.loader().next, lambda: {"timeout": 9}
        yield "loader.next_async", self.loader().next_async, lambda: {"timeout": 9}
        yield "Plan", distag.Plan, lambda: {
            "mesh": mesh, "leaves": {"w": self.plain()}, "rules": {"w": ("x", None)}, "source": 0,
            "memory_bytes": 0, "optimizer_copies": 1, "inference": False}
        yield "Plan", distag.Plan, lambda: {"mesh": mesh, "leaves": {"w": self.plain()}, "saved": self.plan().report}
        shape = distag.deferred((4, 2), init="shape")
        yield "Plan", distag.Plan, lambda: {
            "mesh": mesh, "leaves": {"w": shape}, "roots": [shape.relu()], "mode": "auto", "costs": {"rate": 0},
            "timeout": 9}
        yield "plan.apply", self.plan().apply, lambda: {"mesh": mesh}
        yield "plan.spec", self.plan().spec, lambda: {"name": "w"}
        yield "distribute_module", distag.distribute_module, lambda: {
            "module": module(), "mesh": mesh, "rules": {"weight": ("x", None)}, "src_data_rank": 0}
        yield "parallelize_module", dtensor.parallelize_module, lambda: {
            "module": module(), "device_mesh": mesh, "parallelize_plan": dtensor.ColwiseParallel(), "src_data_rank": 0}
        yield "fully_shard", dtensor.fully_shard, lambda: {"module": module(), "mesh": mesh, "src_data_rank": 0}
        yield "init_device_mesh", dtensor.init_device_mesh, lambda: {
            "device_type": "cpu", "mesh_shape": (1, 1), "mesh_dim_names": ("a", "b"), "worker": worker}
        for name in ("zeros", "ones", "rand", "randn"):
            seed = {"seed": 1} if name.startswith("rand") else {}
            make = getattr(dtensor, name)
            yield name, lambda size, make=make, **more: make(size, **more), lambda seed=seed: {
                "size": (4, 2), "dtype": distag.float32, "requires_grad": True, "device_mesh": mesh,
                "placements": [distag.Shard(0), distag.Replicate()], **seed}
        yield "full", dtensor.full, lambda: {
            "size": (4, 2), "fill_value": 1.0, "dtype": distag.float32, "requires_grad": True, "device_mesh": mesh,
            "placements": [distag.Shard(0), distag.Replicate()]}
        yield "Shard", distag.Shard, lambda: {"dim": 0}
        yield "Partial", distag.Partial, lambda: {"reduce_op": "sum"}
        folder = self.folder
        yield "save", checkpoint.save, lambda: {
            "mesh": mesh, "directory": folder, "value": {"w": self.plain()}, "timeout": 9}
        yield "save_async", checkpoint.save_async, lambda: {
            "mesh": mesh, "directory": folder, "value": {"w": self.plain()}, "timeout": 9}
        yield "load", checkpoint.load, lambda: {
            "mesh": mesh, "directory": folder, "into": {"w": distag.ones((4, 2))}, "timeout": 9}
        yield "load_async", checkpoint.load_async, lambda: {
            "mesh": mesh, "directory": folder, "into": {"w": distag.ones((4, 2))}, "timeout": 9}
        context, sgd = mesh.context(), optim.SGD(worker, [self.sharded().requires_grad_()], lr=0.1)
        yield "backward", context.backward, lambda: {
            "roots": self.sharded().requires_grad_().sum(), "seeds": None, "retain_graph": False,
            "create_graph": False, "mode": "smart", "timeout": 9}
        yield "gradient", context.gradient, lambda: {"tensor": self.sharded()}
        yield "step", sgd.step, lambda: {"context": context, "timeout": 9}
        yield "clip", sgd.clip, lambda: {"context": context, "max_norm": 1.0, "timeout": 9}


# What errors call a parameter otherwise.
SAID = {
    "axes": ("axis",), "axis_names": ("axes",), "dcn_mesh_shape": ("outer_shape", "shape"), "device_mesh": ("mesh",),
    "dim_to": ("dim",), "grad_placements": ("spec",), "gradient_spec": ("spec",),
    "ici_mesh_shape": ("outer_shape", "shape"), "leaves": ("leaf",), "local": ("tensor",), "mesh_dim_names": ("axes",),
    "mesh_shape": ("shape",), "ndim": ("for a tensor of",), "parallelize_plan": ("the plan is",),
    "placements": ("spec", "placement"), "ranks": ("rank",), "reduce_op": ("a partial tensor is",),
    "roots": ("a root is",), "rules": ("rule", "pattern"), "shape": ("for a tensor of",),
    "size": ("shape", "a tensor of"), "source": ("position",), "source_rank": ("rank", "the source"), "specs": ("spec",),
    "src_data_rank": ("position", "source"), "timeout": ("duration",), "x": ("tensor",)}


def names(text, words):
    """Whether one of the words stands in the text, whole: "dim" is not named by "dimension"."""
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for word in words)


def fault(function, arguments, parameter, refused):
    """What is wrong with the error for an argument; None if nothing is. Those that are refused in any case are given."""
    try:
        result = function(**arguments)
        if isinstance(result, distag.futures.Future):
            result.result()
    except (distag.DistagError, TypeError, ValueError) as error:
        if names(str(error), (parameter, *SAID.get(parameter, ()))):
            return None
        return f"does not name it: {type(error).__name__}: {error}"
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    return "is taken" if any(arguments[parameter] is wrong for wrong in refused) else None


def faults(rows):
    for name, function, right in rows:
        for parameter, given in right().items():
            refused = NO_FLAGS if type(given) is bool else NO_INTEGERS if type(given) is int else ()
            for wrong in (*WRONG, *(NO_FLAGS if type(given) is bool else ())):
                found = fault(function, {**right(), parameter: wrong}, parameter,
                              () if parameter == "timeout" else refused)
                if found is not None:
                    yield f"{name}({parameter}={wrong!r}) {found}"


def public_functions():
    """The functions that take arguments, and their parameters."""
    found = {name: getattr(distag, name) for name in (
        "Mesh", "HybridMesh", "Plan", "Loader", "deferred", "distribute_module", "distribute_tensor", "from_local",
        "mark_sharding", "visualize_sharding", "visualize_tensor_sharding")}
    found.update((name, function) for name, function in vars(dtensor).items()
                 if name in dtensor.__all__ and inspect.isfunction(function))
    found.update((name, getattr(checkpoint, name)) for name in ("save", "save_async", "load", "load_async"))
    for owner, kind in (("mesh", distag.Mesh), ("loader", distag.Loader), ("plan", distag.Plan)):
        found.update((f"{owner}.{name}", function) for name, function in vars(kind).items()
                     if not name.startswith("_") and inspect.isfunction(function))
    plain = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: {parameter.name for parameter in inspect.signature(function).parameters.values()
                   if parameter.name != "self" and parameter.kind not in plain} for name, function in found.items()}


@contextlib.contextmanager
def a_folder():
    """One to work in: "wrong" is a directory as well."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield folder


class WrongArguments(unittest.TestCase):
    def test_each_is_named(self):
        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://wrong") as worker:
            with worker.mesh((1, 1), ("x", "y")) as mesh, a_folder() as folder:
                self.assertEqual(list(faults(Table(worker, mesh, folder).rows())), [])

    def test_all_functions_are_tried(self):
        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://all") as worker:
            with worker.mesh((1, 1), ("x", "y")) as mesh, a_folder() as folder:
                tried = {}
                for name, _, right in Table(worker, mesh, folder).rows():
                    tried.setdefault(name, set()).update(right())
        tried["Mesh"] |= tried["worker.mesh"]
        tried["Loader"] |= tried["mesh.loader"]
        missing = {name: parameters - tried.get(name, set()) for name, parameters in public_functions().items()}
        self.assertEqual({name: parameters for name, parameters in missing.items() if parameters}, {})


if __name__ == "__main__":
    unittest.main()
