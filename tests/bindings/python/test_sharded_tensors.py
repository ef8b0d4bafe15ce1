"""What a tensor can do, on one that lies over a mesh: each public name of the class works as on a plain tensor, or is
refused; none is silently without effect."""
import copy
import itertools
import unittest

import distag
from test_meshes import numbers, on_members

SPECS = [("data", "model"), (None, "model"), (("data", "model"), None), (None, None)]
ROWS, COLUMNS = 4, 6
IDS = distag.tensor([[1, 0, 2, 3, 1, 0]])


def floats():
    return (numbers(ROWS, COLUMNS) + 1.0) * 0.25


def set_to(key, value):
    def call(x):
        x[key] = value
    return call


def add_to(key, value):
    def call(x):
        x[key] += value
    return call


def iadd(x):
    x += 1.0
    return x


def isub(x):
    x -= 1.0
    return x


def imul(x):
    x *= 2.0
    return x


def itruediv(x):
    x /= 2.0
    return x


def ipow(x):
    x **= 2.0
    return x


def imatmul(x):
    x @= distag.ones((COLUMNS, COLUMNS), distag.float64)
    return x


def flag(x):
    x.requires_grad = True
    return x.requires_grad


# How each name is called. Where several calls stand, each is a case.
CALLS = {
    "__add__": [lambda x: x + 1.0, lambda x: x + x], "__radd__": lambda x: 1.0 + x, "__sub__": lambda x: x - 1,
    "__rsub__": lambda x: 1 - x, "__mul__": [lambda x: x * 2, lambda x: x * x], "__rmul__": lambda x: 2.0 * x,
    "__truediv__": lambda x: x / 2.0, "__rtruediv__": lambda x: 1.0 / x, "__pow__": lambda x: x ** 2.0,
    "__rpow__": lambda x: 2.0 ** x, "__matmul__": lambda x: x @ distag.ones((COLUMNS, 2), distag.float64),
    "__rmatmul__": lambda x: [[1.0] * ROWS] @ x, "__neg__": lambda x: -x, "__abs__": abs, "__lt__": lambda x: x < 1.0,
    "__le__": lambda x: x <= 1.0, "__gt__": lambda x: x > 1.0, "__ge__": lambda x: x >= 1.0,
    "__eq__": lambda x: x == x, "__hash__": lambda x: hash(x) == hash(x), "__bool__": bool, "__float__": float,
    "__int__": int, "__len__": len, "__iter__": lambda x: [row.sum() for row in x],
    "__getitem__": [lambda x: x[1], lambda x: x[1:3, ::2], lambda x: x[:, None, -1],
                    lambda x: x[distag.tensor([2, 0])]],
    "__setitem__": [
        *(set_to(key, 9.0) for key in (0, slice(None), ..., (slice(None), -1), (slice(1, None, 2), slice(2, 5)), None)),
        set_to(slice(1, 3), distag.ones((2, COLUMNS), distag.float64)), set_to(slice(None), floats() * 3.0),
        set_to((slice(None), 1), [1.0, 2.0, 3.0, 4.0]), set_to(slice(2, 2), 5.0), set_to(distag.tensor([0]), 1.0),
        *(add_to(key, 1.0) for key in (0, slice(None), (..., slice(0, 3)))), set_to(slice(None, None, -1), 1.0)],
    "__iadd__": [iadd, isub, imul, itruediv, ipow, imatmul],  # they give a new tensor: the class has none of them
    "__repr__": lambda x: isinstance(repr(x), str), "__deepcopy__": copy.deepcopy,
    "__dlpack__": lambda x: x.__dlpack__() and 1,
    "__dlpack_device__": lambda x: tuple(x.__dlpack_device__()), "__array__": lambda x: x.__array__().tolist(),
    "T": lambda x: x.T, "dtype": lambda x: x.dtype.name, "ndim": lambda x: x.ndim, "shape": lambda x: x.shape,
    "strides": lambda x: x.strides, "size": lambda x: x.size, "nbytes": lambda x: x.nbytes,
    "id": lambda x: x.id == x.id,
    "requires_grad": flag, "requires_grad_": lambda x: x.requires_grad_().requires_grad, "item": lambda x: x.item(),
    "tobytes": lambda x: bytes(x.tobytes()), "tolist": lambda x: x.tolist(), "snapshot": lambda x: x.snapshot(),
    "numpy": lambda x: x.numpy().tolist(), "write": lambda x: x.write((floats() * 5.0).tolist()),
    "assign": lambda x: x.assign(3.0), "add_scaled": lambda x: x.add_scaled(1.0, 2.0),
    "add_hook": lambda x: x.requires_grad_().add_hook(lambda gradient: None) > 0,
    "remove_hook": lambda x: x.remove_hook(x.requires_grad_().add_hook(lambda gradient: None)),
    "reshape": lambda x: x.reshape(-1), "is_deferred": lambda x: x.is_deferred,
    "is_shape_only": lambda x: x.is_shape_only,
    "close": lambda x: x.clone().close(), "is_closed": lambda x: x.is_closed,
    # Of sharded ones alone; test_meshes.py and test_dtensor.py have them.
    "device_mesh": None, "full_tensor": None, "placements": None, "to_local": None, "spec": None, "mesh": None, "local": None, "gather_async": None, "redistribute": None,
    # Ops with more than the tensor; those that are not here take it alone.
    **{name: (lambda name: lambda x: getattr(x, name)(x * 0.5))(name) for name in
       ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "pow", "mse_loss",
        "l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "kl_div")},
    "add_scalar": lambda x: x.add_scalar(2.0), "mul_scalar": lambda x: x.mul_scalar(2.0), "sum": [
        lambda x: x.sum(), lambda x: x.sum(dims=0), lambda x: x.sum(dims=(1,), keepdim=True)],
    "argmax": lambda x: x.argmax(1), "matmul": lambda x: x.matmul(distag.ones((COLUMNS, 3), distag.float64)),
    "linear": lambda x: x.linear(distag.ones((2, COLUMNS), distag.float64)), "transpose": lambda x: x.transpose(0, 1),
    "slice": lambda x: x.slice(0, 1, 3), "softmax": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(0),
    "cross_entropy": lambda x: x.cross_entropy(distag.tensor([0, 1, 2, 3])), "cast": lambda x: x.cast(distag.float32),
    "nll_loss": lambda x: x.nll_loss(distag.tensor([0, 1, 2, 3])), "clamp": lambda x: x.clamp(0.5, 2.0),
    "permute": lambda x: x.permute((1, 0)), "expand": lambda x: x.expand((2, ROWS, COLUMNS)),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1), "unsqueeze": lambda x: x.unsqueeze(0),
    "split": lambda x: x.split((1, 3)),
    "flip": lambda x: x.flip(0), "pad": lambda x: x.pad(0, 1, 2, 0.5), "cumsum": lambda x: x.cumsum(0),
    "where": lambda x: (x > 1.0).where(x, x * 0.0), "gather": lambda x: x.gather(IDS, 0),
    "index_select": lambda x: x.index_select(distag.tensor([1, 1])),
    "embedding": lambda x: x.cast(distag.int64).embedding(numbers(7, 2)),
    "layer_norm": lambda x: x.layer_norm(), "dropout": lambda x: x.dropout(0.5, 3),
    "logical_and": lambda x: (x > 1.0).logical_and(x < 2.0), "logical_or": lambda x: (x > 1.0).logical_or(x < 2.0),
    "logical_not": lambda x: (x > 1.0).logical_not(), "masked_fill": lambda x: x.masked_fill(x > 1.0, 0.0),
    "any": lambda x: (x > 1.0).any(), "all": lambda x: (x > 1.0).all(),
    "one_hot": lambda x: x.cast(distag.int64).one_hot(9),
    "topk": lambda x: x.topk(2), "nonzero": lambda x: x.nonzero(), "sort": lambda x: x.sort(1),
    "index_add": lambda x: x.index_add(distag.tensor([1]), distag.ones((1, COLUMNS), distag.float64)),
    "scatter_add": lambda x: x.scatter_add(IDS, distag.ones((1, COLUMNS), distag.float64), 0),
    "repeat": lambda x: x.repeat((2, 1)),
}
PICTURES = {  # inputs of four dims: [n, c, h, w]
    "conv2d": lambda x: x.conv2d(distag.ones((1, 1, 2, 2), distag.float64)), "max_pool2d": lambda x: x.max_pool2d(2),
    "avg_pool2d": lambda x: x.avg_pool2d((2, 2)), "adaptive_avg_pool2d": lambda x: x.adaptive_avg_pool2d((2, 2)),
    "conv_transpose2d": lambda x: x.conv_transpose2d(distag.ones((1, 1, 2, 2), distag.float64)),
    "interpolate": lambda x: x.interpolate((2, 2)), "group_norm": lambda x: x.group_norm(num_groups=1),
    "batch_norm": lambda x: x.batch_norm(), "conv1d": lambda x: x.reshape(ROWS, 2, 3).conv1d(
        distag.ones((1, 2, 2), distag.float64)),
    "scaled_dot_product_attention": lambda x: x.scaled_dot_product_attention(x, x),
}
# These fail on any tensor of several elements, or name no place; those need all elements here, and say to gather.
FAILING = {"__bool__[0]", "__float__[0]", "__int__[0]", "__setitem__[10]", "__setitem__[14]", "item[0]"}
REFUSED = {"__array__[0]", "__dlpack__[0]", "nonzero[0]", "numpy[0]", "tobytes[0]", "tolist[0]"}


COMMON = ("__eq__", "__hash__", "__repr__", "__lt__", "__le__", "__gt__", "__ge__", "__iadd__")  # each object has them


def names():
    """All that a tensor has, beside what every object has, and private things."""
    own = {name for name in dir(distag.Tensor) if name not in dir(object) and not name.startswith("_distag")}
    hidden = {name for name in own if name.startswith("_") and not name.startswith("__")}
    machinery = {"__slots__", "__module__", "__annotations__", "__dict__", "__weakref__", "__array_ufunc__", "__copy__",
                 "__reduce_ex__", "__del__", "__getattr__", "__enter__", "__exit__", "__getstate__", "__parameters__"}
    return sorted(own - hidden - machinery)


def cases():
    for name in [*names(), *COMMON]:
        calls = CALLS[name] if name in CALLS else PICTURES.get(name, lambda x, name=name: getattr(x, name)())
        for number, call in enumerate(calls if isinstance(calls, list) else [calls] if calls else []):
            yield f"{name}[{number}]", call, name in PICTURES


def values(found):
    if isinstance(found, distag.Tensor):
        return values((found.gather() if found.spec else found).tolist())
    if isinstance(found, (list, tuple)):
        return [values(each) for each in found]
    return round(found, 9) if isinstance(found, float) else found


def outcome(call, x):
    """What the call gives and leaves behind, or the exception."""
    try:
        found = call(x)
    except (distag.DistagError, TypeError, IndexError) as failure:
        return failure, None
    return values(found), values(x)


class Operations(unittest.TestCase):
    def test_each_works_as_on_a_plain_tensor_or_is_refused(self):
        table, failing, refused = list(cases()), set(), set()

        def program(worker, mesh):
            told = []
            for (name, call, is_picture), spec in itertools.product(table, SPECS):
                make = (lambda: floats().reshape(ROWS, 1, 2, 3)) if is_picture else floats
                spec = (spec[0], None, spec[1], None) if is_picture else spec
                expected, after = outcome(call, make())
                found, left = outcome(call, mesh.shard(make(), spec))
                told.append((name, spec, type(found) if isinstance(found, Exception) else found))
                if isinstance(expected, Exception):
                    failing.add(name)
                    self.assertIsInstance(found, type(expected), (name, spec, found))
                elif isinstance(found, Exception):
                    refused.add(name)
                    self.assertIsInstance(found, distag.DistagError, (name, spec, found))
                else:
                    self.assertEqual((found, left), (expected, after), (name, spec))
            return told

        first, *others = on_members(program)
        for other in others:
            self.assertEqual(other, first)
        self.assertEqual((failing, refused), (FAILING, REFUSED))

    def test_a_part_that_cannot_be_written_says_what_to_do(self):
        def program(worker, mesh):
            total = mesh.shard(floats(), ("data", None)).sum(dims=0)
            with self.assertRaisesRegex(distag.UnsupportedError, "part of a sum.*redistribute"):
                total[0] = 1.0
            weight = mesh.shard(floats(), ("data", None)).requires_grad_()
            with self.assertRaisesRegex(distag.UsageError, "detach it, or write within no_grad"):
                weight[0] = 1.0
            with distag.no_grad():
                weight[0] = 1.0
            self.assertEqual(weight.gather().tolist()[0], [1.0] * COLUMNS)
            weight[:] = floats() * 2.0  # as assign does
            self.assertEqual(weight.gather().tolist(), (floats() * 2.0).tolist())
            for wrong in (distag.ones((5,), distag.float64), [1.0, 2.0]):
                with self.assertRaises(distag.UsageError):
                    weight.detach()[0] = wrong
            other = worker.mesh((4,), ("x",), timeout=240)
            with self.assertRaisesRegex(distag.UnsupportedError, "another mesh: gather it"):
                weight.detach()[0] = other.shard(distag.ones((COLUMNS,), distag.float64), (None,))
            other.close()
            return weight.spec

        self.assertEqual(on_members(program), ["('data', None)"] * 4)


if __name__ == "__main__":
    unittest.main()
