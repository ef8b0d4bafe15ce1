"""Numbers of the host beside tensors: Python's, NumPy's, lists. None loses a history, and none is rounded or cut
without a word."""
import unittest

import distag

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipIf(numpy is None, "NumPy is not here")


class Operands(unittest.TestCase):
    def check(self, y, values, x, gradient):
        """y has the values, and the gradient of its sum by x."""
        self.assertIsInstance(y, distag.Tensor)
        self.assertEqual((y.tolist(), y.dtype), (values, x.dtype))
        with distag.Context() as context:
            context.backward(y.sum())
            self.assertEqual(context.gradient(x).tolist(), gradient)

    @needs_numpy
    def test_numpy_on_the_left_keeps_the_history(self):
        x = distag.tensor([2.0, 4.0], requires_grad=True)
        for two in (numpy.float64(2), numpy.float32(2), numpy.int64(2), numpy.array(2.0, "float32"),
                    numpy.array([2, 2], "float32")):
            self.check(two * x, [4, 8], x, [2, 2])
            self.check(two + x, [4, 6], x, [1, 1])
            self.check(two - x, [0, -2], x, [-1, -1])
            self.check(two / x, [1, 0.5], x, [-0.5, -0.125])
            self.assertTrue((two ** x).requires_grad)
        self.check(numpy.ones((3, 2), "float32") @ x, [6, 6, 6], x, [3, 3])

    @needs_numpy
    def test_numpy_on_the_right(self):
        x = distag.tensor([2.0, 4.0], requires_grad=True)
        for two in (numpy.float64(2), numpy.float32(2), numpy.int64(2), numpy.array([2, 2], "float32")):
            self.check(x * two, [4, 8], x, [2, 2])
            self.check(x - two, [0, 2], x, [1, 1])
            self.check(x / two, [1, 2], x, [0.5, 0.5])
        self.check(x @ numpy.ones((2, 3), "float32"), [6, 6, 6], x, [3, 3])
        self.assertEqual((distag.tensor([1, 2]) + numpy.int64(1)).dtype, distag.int64)
        self.assertEqual((distag.tensor([1, 2]) + numpy.float64(1)).dtype, distag.float32)

    def test_lists_on_both_sides(self):
        x = distag.tensor([2.0, 4.0], requires_grad=True)
        self.check([1, 2] * x, [2, 8], x, [1, 2])
        self.check((1, 2) + x, [3, 6], x, [1, 1])
        self.check(x @ [1.0, 2.0], 10.0, x, [1, 2])
        self.assertEqual((distag.ones((1,), distag.float64) * [0.1]).tolist(), [0.1])

    def test_what_is_no_number_is_pythons_own_error(self):
        x = distag.tensor([1.0])
        for operate in (lambda: x + "a", lambda: "a" + x, lambda: x * None, lambda: x @ "a", lambda: x ** {}):
            with self.assertRaisesRegex(TypeError, "Tensor"):
                operate()
        for assign in (x.assign, x.add_scaled):
            with self.assertRaisesRegex(TypeError, "not a str"):
                assign("a")

        class Other:
            def __radd__(self, other):
                return "mine"

        self.assertEqual(x + Other(), "mine")


class BigIntegers(unittest.TestCase):
    big = 2**53 + 1

    def test_beside_int64_they_are_exact(self):
        x = distag.tensor([1, 2])
        big = self.big
        for found, expected in ((x + big, [big + 1, big + 2]), (big + x, [big + 1, big + 2]),
                                (x - big, [1 - big, 2 - big]), (big - x, [big - 1, big - 2]),
                                (x * big, [big, 2 * big]), (x + 2**62, [2**62 + 1, 2**62 + 2]),
                                (x - -2**62, [2**62 + 1, 2**62 + 2])):
            self.assertEqual((found.tolist(), found.dtype), (expected, distag.int64))

    def test_assigned_and_filled_they_are_exact(self):
        x = distag.tensor([1, 2])
        x.assign(self.big)
        self.assertEqual(x.tolist(), [self.big] * 2)
        x[1] = self.big + 1
        self.assertEqual(x.tolist(), [self.big, self.big + 1])
        self.assertEqual(distag.full(self.big, (2,), distag.int64).tolist(), [self.big] * 2)
        self.assertEqual(distag.full(-2**63, dtype=distag.int64).item(), -2**63)
        self.assertEqual(distag.full(2, (2,), distag.int64).tolist(), [2, 2])

    def test_beside_floats_they_are_floats(self):
        x = distag.tensor([1.0], distag.float64)
        self.assertEqual((x * self.big).tolist(), [float(self.big)])
        self.assertEqual((x + 2**70).tolist(), [2.0**70])

    def test_more_than_64_bits_are_refused(self):
        for operate in (lambda: distag.tensor([1]) + 2**63, lambda: distag.full(2**64, (), distag.int64)):
            with self.assertRaisesRegex(distag.UsageError, "no int64"):
                operate()


if __name__ == "__main__":
    unittest.main()
