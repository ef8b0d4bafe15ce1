"""Mistakes in a call are named in the words of the caller: the argument, what is wanted, and what was given."""
import array
import asyncio
import os
import unittest
from unittest import mock

import distag
from support import group

try:
    import numpy
except ImportError:
    numpy = None


class Bad(distag.CustomOp):
    def __init__(self, result):
        self.result = result

    def forward(self, x):
        return self.result


class Messages(unittest.TestCase):
    def says(self, kind, words, *uses):
        for use in uses:
            with self.assertRaisesRegex(kind, words):
                use()

    def test_of_indices(self):
        x = distag.zeros((2, 3, 4))
        self.says(TypeError, "an index is an integer, a slice, .* not a (float|str|list|bool)$", lambda: x[1.5],
                  lambda: x["a"], lambda: x[[0, 1]], lambda: x[True])
        for key, dim, size in (((0, 5), 1, 3), ((0, 0, -5), 2, 4), ((None, 2), 0, 2), ((..., 4), 2, 4),
                               ((0, ..., 4), 2, 4)):
            self.says(IndexError, f"index {key[-1]} is out of range for dim {dim} with size {size}", lambda: x[key])
        self.says(IndexError, "one ... at most", lambda: x[..., ...])
        self.says(IndexError, "4 indices for a tensor with 3 dims", lambda: x[0, 0, 0, 0])

    def test_parts_behind_an_ellipsis(self):
        x = distag.arange(0, 24).reshape(2, 3, 4)
        self.assertEqual(x[..., None, 1].shape, (2, 3, 1))
        self.assertEqual(x[1, ..., 1:3].tolist(), [[13, 14], [17, 18], [21, 22]])
        self.assertEqual(x[0, 1, 2, ...].item(), 6)

    def test_of_inputs_of_ops(self):
        x = distag.ones((2,))
        self.says(TypeError, "Tensor.*str|str.*Tensor", lambda: x + "a", lambda: x @ "a", lambda: "a" / x)
        self.says(distag.UsageError, "a list of tensors is wanted, not one tensor", lambda: distag.apply("relu", x, {}),
                  lambda: distag.concat(x))
        self.says(distag.UsageError, "item 1 is an int", lambda: distag.concat([x, 1]), lambda: Bad(None)(x, 1))
        self.says(distag.UsageError, "a tensor or None is wanted, not an int", lambda: distag.linear(x, x, 1))
        self.says(distag.UsageError, "a: a tensor is wanted, not an int", lambda: distag.add(1, x))
        self.says(distag.UsageError, "b: a tensor is wanted, not a list", lambda: x.maximum([1.0]))

    def test_of_results_of_ops_and_hooks(self):
        x = distag.tensor([1.0], requires_grad=True)
        self.says(distag.UsageError, "forward gives a tensor, .* not 1.5", lambda: Bad(1.5)(x))
        self.says(distag.UsageError, r"forward gives a tensor, .* not \[1.5\]", lambda: Bad([1.5])(x))
        x.add_hook(lambda gradient: 2)
        with distag.Context() as context:
            self.says(distag.UsageError, "a hook gives a tensor or None, not 2",
                      lambda: context.backward((x * 2).sum()))

    def test_of_dtypes_and_buffers(self):
        self.says(distag.UsageError, "a dtype is distag.float32, .* not 'float32'",
                  lambda: distag.tensor([1], "float32"))
        self.says(distag.UsageError, "dtype: distag.float32, .* is wanted, not 'f'", lambda: distag.zeros((2,), "f"),
                  lambda: distag.zeros((2,)).cast("f"))
        doubles = array.array("d", [1.0])
        self.says(distag.UnsupportedError, "a buffer of float64 is not converted: .* cast that to float32",
                  lambda: distag.tensor(doubles, distag.float32))
        self.says(distag.UnsupportedError, "say what bytes are, as in memoryview", lambda: distag.tensor(b"1234"))

    def test_of_arrays_to_borrow(self):
        for data in ([1.0], 2.0, distag.ones((1,))):
            self.says(distag.UsageError, f"a {type(data).__name__} is no NumPy array", lambda: distag.from_numpy(data))

    @unittest.skipIf(numpy is None, "NumPy is not here")
    def test_of_numbers_of_numpy_to_borrow(self):
        self.assertEqual(distag.from_numpy(numpy.array(2.0)).item(), 2.0)

    @unittest.skipIf(numpy is None, "NumPy is not here")
    def test_of_arrays_that_mean_more_than_their_elements(self):
        class Length(numpy.ndarray):
            units = "m"

        class Image(numpy.ndarray):
            pass

        plain = numpy.arange(3.0)
        records = numpy.array([(1.0, 2)], dtype=[("x", "f4"), ("n", "i8")])
        arrays = ((numpy.ma.masked_array(plain, mask=[0, 1, 0]), "its mask would be lost: give array.filled"),
                  (numpy.ma.masked, "its mask would be lost"),
                  (records, "its elements have fields: give one of them, as array..x.."),
                  (records.view(numpy.recarray), "its elements have fields"), (records[0], "its elements have fields"),
                  (plain.view(Length), "its unit would be lost: convert it"),
                  (plain.view(Image), "what its type means beyond the elements would be lost: give numpy.asarray"))
        keep = []
        for data, cure in arrays:
            self.says(distag.UsageError, f"an array of type {type(data).__name__}: {cure}",
                      lambda: distag.tensor(data), lambda: distag.tensor([data]),
                      lambda: distag.tensor(data, distag.float32), lambda: distag.from_dlpack(data))
            if isinstance(data, numpy.ndarray):
                self.says(distag.UsageError, cure, lambda: distag.from_numpy(data))
        self.says(distag.UsageError, "its mask would be lost", lambda: distag.values.to_value(numpy.ma.masked, keep, "x"))
        self.assertEqual(distag.tensor(numpy.float32(2)).item(), 2)

    @unittest.skipIf(numpy is None, "NumPy is not here")
    def test_of_strides(self):
        """Those that go backwards are taken, in both ways; those that are no whole elements are not."""
        array = numpy.arange(6, dtype="float32").reshape(2, 3)
        turned = (array[::-1], array[:, ::-1], array[::-1, ::-2], numpy.array([True, False])[::-1])
        for data in turned:
            self.assertEqual(distag.from_numpy(data).tolist(), data.tolist())
            self.assertEqual(distag.from_dlpack(data.astype("float32")[::-1]).tolist(), data.astype("float32")[::-1].tolist())
        whole = numpy.zeros(3)
        with distag.from_numpy(whole[::-1]):
            self.assertFalse(whole.flags.writeable)
        self.assertTrue(whole.flags.writeable)
        odd = numpy.zeros(4, dtype="f4,i1")["f0"]
        self.says(distag.UsageError, "the strides of the array are no whole elements: copy it first",
                  lambda: distag.from_numpy(odd))

    def test_of_the_data_of_a_sample(self):
        """A wheel that was made without the data says where that is."""
        from distag.samples import digits

        self.assertTrue(os.path.exists(digits.data_path()))
        with mock.patch("os.path.exists", return_value=False):
            self.says(SystemExit, "take samples/data/digits.csv of distag.s sources, .* and name the file by --data",
                      digits.data_path)

    def test_of_gradients(self):
        x = distag.tensor([1.0], requires_grad=True)
        with distag.Context() as context:
            context.backward((x * 2).sum())
            self.assertNotIn(1, context.gradients())
            self.assertIn(x, context.gradients())
            self.says(distag.UsageError, "gradient: a tensor is wanted, not an int", lambda: context.gradient(1))

    def test_of_workers(self):
        with group({"one": lambda: 1}) as (a, _):
            self.says(distag.UsageError, "executor=.host.", lambda: a.attach(asyncio))
            self.says(distag.UsageError, "label: a text is wanted, not an int", lambda: a.call("b", "one", label=1))
            self.says(distag.UsageError, "context: a Context is wanted, or None, not an int",
                      lambda: a.call("b", "one", context=5))
            gone = distag.ones((1,))
            gone.close()
            self.says(distag.ClosedError, r"args\[1\].layers\[0\]: this Tensor is closed",
                      lambda: a.call("b", "one", 1, {"layers": [gone]}))
            self.says(distag.UsageError, "a duration is a number of seconds", lambda: a.call("b", "one", timeout="1"))
        with distag.Worker("a", rank=0, world_size=1, rendezvous="inproc://attach", executor="host") as a:
            self.says(distag.UsageError, "an event loop is wanted, .* not a str", lambda: a.attach("loop"))


if __name__ == "__main__":
    unittest.main()
