"""Numbers of the host beside tensors: Python's, NumPy's, lists. None loses a history, and none is rounded or cut
without a word."""
import array
import datetime
import decimal
import fractions
import math
import unittest

import distag
from distag._arguments import flag, nanoseconds
from support import group

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

    def test_integers_that_no_float64_holds_are_exact_or_refused(self):
        big = 2**53 + 1
        given = [big, fractions.Fraction(big), decimal.Decimal(big), distag.tensor(big)]
        if numpy:
            given += [numpy.int64(big), numpy.array(big)]
        for value in given:
            for fill in (distag.full, distag.ops.full):
                if fill is distag.full and not isinstance(value, (fractions.Fraction, decimal.Decimal)):
                    self.assertEqual(fill(value, (2,), distag.int64).tolist(), [big, big])
                else:
                    self.refused(lambda: fill(value, (2,), distag.int64))
                for dtype in (distag.float32, distag.float64):
                    self.refused(lambda: fill(value, (2,), dtype))
        x = distag.tensor([1, 2])
        for operate in (lambda: distag.ops.arange(big, big + 2, 1, distag.int64), lambda: distag.full(10**400),
                        lambda: x.add_scalar(-big), lambda: x.mul_scalar(big), lambda: distag.ops.full(-2**63 - 1)):
            self.refused(operate)

    def refused(self, operate):
        with self.assertRaisesRegex(distag.UsageError, "no float64 holds it"):
            operate()

    def test_what_a_float64_holds_is_filled_in_as_it_is(self):
        for value in (2**53, -2**53, 2**60, -2**63, 2.0**60, fractions.Fraction(3), decimal.Decimal(2**60), True):
            self.assertEqual(distag.full(value, (), distag.int64).tolist(), int(value))
        self.assertEqual(distag.full(float(2**53 + 1), (), distag.float64).tolist(), 2.0**53)
        self.assertEqual(distag.full(fractions.Fraction(1, 4)).tolist(), 0.25)
        self.assertEqual(distag.full(math.inf).tolist(), math.inf)
        self.assertTrue(math.isnan(distag.full(math.nan).tolist()))
        if numpy:
            self.assertEqual(distag.full(numpy.float32(0.5)).tolist(), 0.5)
        for cut in (0.5, math.nan, 2.0**63):
            with self.assertRaisesRegex(distag.UsageError, "is no int64"):
                distag.full(cut, (), distag.int64)

    def test_beside_floats_they_are_floats(self):
        x = distag.tensor([1.0], distag.float64)
        self.assertEqual((x * float(self.big)).tolist(), [float(self.big)])
        self.assertEqual((x + 2**70).tolist(), [2.0**70])
        for operate in (lambda: x * self.big, lambda: self.big + x, lambda: x - 10**400,
                        lambda: distag.ones((1,)) + self.big):
            self.refused(operate)

    def test_more_than_64_bits_are_refused(self):
        for operate in (lambda: distag.tensor([1]) + 2**63, lambda: distag.full(2**64, (), distag.int64)):
            with self.assertRaisesRegex(distag.UsageError, "no int64"):
                operate()


class Conversions(unittest.TestCase):
    @needs_numpy
    def test_numpys_numbers_in_lists_keep_their_kind(self):
        for item, dtype in ((numpy.int64(3), distag.int64), (numpy.uint8(3), distag.int64),
                            (numpy.float32(3), distag.float32), (numpy.bool_(True), distag.bool_)):
            x = distag.tensor([item, item])
            self.assertEqual((x.dtype, x.tolist()), (dtype, [item.item()] * 2))
        self.assertEqual(distag.tensor([numpy.array([1, 2]), [3, 4]]).tolist(), [[1, 2], [3, 4]])

    def test_tensors_in_lists_are_numbers(self):
        x = distag.tensor([2**53 + 1, 2])
        self.assertEqual(distag.tensor([x, [3, x[1]]]).tolist(), [[2**53 + 1, 2], [3, 2]])

    @needs_numpy
    def test_arrays_that_would_be_cut_are_refused(self):
        for array, dtype in ((numpy.array([1.5]), distag.int64), (numpy.array([2**63], "uint64"), distag.int64),
                             (numpy.array([1j]), distag.float32), (numpy.array(["1"]), distag.float64),
                             (numpy.array([None]), distag.bool_)):
            with self.assertRaisesRegex(distag.UsageError, f"no {dtype.name}"):
                distag.tensor(array, dtype)
        with self.assertRaisesRegex(distag.UsageError, "no int64"):
            distag.tensor([1, 2]).write(numpy.array([1.0, 2.0]))
        self.assertEqual(distag.tensor(numpy.array([1, 0], "uint8"), distag.int64).tolist(), [1, 0])
        self.assertEqual(distag.tensor(numpy.array([1, 0]), distag.bool_).tolist(), [True, False])

    def test_texts_are_no_numbers(self):
        for dtype in (None, distag.float32, distag.float64, distag.int64, distag.bool_):
            for data in (["1"], [b"1"], [None], "1"):
                with self.assertRaisesRegex(distag.UsageError, "no "):
                    distag.tensor(data, dtype)
        with self.assertRaisesRegex(distag.UsageError, "no int64"):
            distag.tensor([1.5], distag.int64)

    def test_texts_and_buffers_of_texts_are_no_float64(self):
        x, sgd, context = distag.ones((2,)), distag.optim.SGD(None, [distag.ones((2,))], lr=1), distag.Context()
        texts = ["1.5", b"1.5", bytearray(b"1.5"), memoryview(b"1.5"), array.array("b", b"1.5")]
        if numpy is not None:
            texts += [numpy.str_("1.5"), numpy.bytes_(b"1.5"), numpy.array("1.5"), numpy.array(b"1.5")]
        for text in texts:
            for name, function in {"value": x.add_scalar, "scale": lambda text: x.add_scaled(x, text),
                                   "max_norm": lambda text: sgd.clip(context, text),
                                   "shift": lambda text: distag.deferred((2,), shift=text)}.items():
                with self.subTest(name, text=text), self.assertRaisesRegex(
                        distag.UsageError, f"{name}: a number is wanted"):
                    function(text)

    def test_flags_are_booleans(self):
        taken = [True, False]
        if numpy is not None:
            taken += [numpy.True_, numpy.False_, numpy.array([True])[0]]
        for given in taken:
            self.assertIs(flag(given, "keep"), bool(given))
        refused = [None, 0, 1, 7, -1, 1.0, "", "False", (), distag.tensor(True)]
        if numpy is not None:
            refused += [numpy.int64(1), numpy.array([True, False])]
        for given in refused:
            for name, function in {
                    "keep": lambda given: flag(given, "keep"), "bias": lambda given: distag.nn.Linear(2, 2, bias=given),
                    "requires_grad": lambda given: distag.tensor(1.0, requires_grad=given),
                    "record": lambda given: distag.apply("relu", [distag.ones((1,))], {}, record=given),
                    "no_lane": lambda given: distag.Worker(no_lane=given),
                    "allow_insecure": lambda given: distag.Worker(allow_insecure=given)}.items():
                with self.subTest(name, given=given), self.assertRaisesRegex(
                        TypeError, f"^{name}: True or False is wanted, not "):
                    function(given)

    @needs_numpy
    def test_numpys_integers_are_sizes_dims_and_indices(self):
        two, one = numpy.int64(2), numpy.int32(1)
        self.assertEqual(distag.zeros((two, one)).shape, (2, 1))
        self.assertEqual(distag.zeros(two).shape, (2,))
        x = distag.tensor([[1, 2], [3, 4]])
        self.assertEqual(x.sum(one).tolist(), [3, 7])
        self.assertEqual(x.reshape(two * two).shape, (4,))
        self.assertEqual(x.transpose(one, numpy.int64(0)).tolist(), [[1, 3], [2, 4]])
        self.assertEqual(distag.zeros((1, 1, 4, 4)).max_pool2d(two).shape, (1, 1, 2, 2))
        self.assertEqual(distag.apply("sum", [x], {"dims": [one]})[0].tolist(), [3, 7])

    def test_one_number_stands_for_two(self):
        x, weight = distag.ones((1, 2, 8, 8)), distag.ones((2, 1, 3, 3))
        for one, two in ((2, (2, 2)), (1, [1, 1])):
            for name in ("stride", "padding", "dilation"):
                for groups in (1, 2):
                    kernels = weight if groups == 2 else distag.ones((2, 2, 3, 3))
                    both = [distag.conv2d(x, kernels, groups=groups, **{name: given}) for given in (one, two)]
                    self.assertEqual(both[0].shape, both[1].shape, (name, groups))
                    self.assertEqual(both[0].tolist(), both[1].tolist(), (name, groups))
        with self.assertRaises(distag.UsageError):
            distag.conv2d(x, weight, groups=2, padding=(1, 1, 1))

    @needs_numpy
    def test_numpys_pairs(self):
        x, weight = distag.ones((1, 2, 8, 8)), distag.ones((2, 2, 3, 3))
        for name in ("stride", "padding", "dilation"):
            self.assertEqual(distag.conv2d(x, weight, **{name: numpy.array([2, 1])}).shape,
                             distag.conv2d(x, weight, **{name: (2, 1)}).shape)

    def test_integers_that_do_not_fit_are_refused(self):
        x = distag.ones((2, 2))
        for use in (lambda: distag.zeros((2**64 + 2,)), lambda: x.sum((2**64,)), lambda: x.transpose(2**64, 1),
                    lambda: distag.rand(-1, (2,)), lambda: x.softmax(2**64), lambda: x.remove_hook(2**64)):
            with self.assertRaisesRegex(distag.UsageError, "bits|fit"):
                use()
        for options in ({"rank": 2**32}, {"world_size": 2**33}, {"thread_count": -1}, {"max_message_bytes": 2**64}):
            with self.assertRaisesRegex(distag.UsageError, f"{[*options][0]}: .* does not fit"):
                distag.Worker("a", **{"rank": 0, "world_size": 1, "rendezvous": "inproc://fit", **options})


class Values(unittest.TestCase):
    @needs_numpy
    def test_numpys_numbers_travel_as_pythons(self):
        numbers = [numpy.float32(0.5), numpy.float64(0.1), numpy.int16(3), numpy.bool_(True), numpy.array(7)]
        with group({"echo": lambda x: x, "give": lambda index: numbers[index]}) as (a, _):
            self.assertEqual(a.call("b", "echo", numbers), [0.5, 0.1, 3, True, 7])
            for index, number in enumerate(numbers):
                for found in (a.call("b", "echo", number), a.call("b", "give", index)):
                    self.assertEqual((found, type(found)), (number, type(number.tolist())))
            with self.assertRaisesRegex(distag.UsageError, r"args\[0\]: an object of type ndarray is no value"):
                a.call("b", "echo", numpy.zeros(2))

    @needs_numpy
    def test_an_array_stays_behind_a_reference(self):
        with group({"make": lambda: numpy.arange(3), "sum": lambda array: int(array.local().sum())}) as (a, _):
            self.assertEqual(a.call("b", "sum", a.remote("b", "make")), 3)

    def test_tuples_travel_as_lists(self):
        with group({"echo": lambda x: x}) as (a, _):
            self.assertEqual(a.call("b", "echo", (1, (2.0, "a"))), [1, [2.0, "a"]])


class Times(unittest.TestCase):
    def test_what_is_no_duration_is_refused(self):
        for timeout in (-1, float("nan"), "5", [1], 1j):
            with self.assertRaisesRegex(distag.UsageError, "a duration is a number of seconds"):
                nanoseconds(timeout)

    def test_durations_in_nanoseconds(self):
        for timeout, expected in ((None, 7), (0, 0), (1.5, 1500000000), (datetime.timedelta(seconds=2), 2 * 10**9),
                                  (fractions.Fraction(1, 2), 5 * 10**8), (distag.FOREVER, -1), (1e300, -1),
                                  (10**400, -1), (datetime.timedelta.max, -1)):
            self.assertEqual(nanoseconds(timeout, 7), expected)

    @needs_numpy
    def test_numpys_durations(self):
        self.assertEqual(nanoseconds(numpy.float32(0.5)), 5 * 10**8)

    def test_a_timeout_of_0_of_a_pass_is_the_shortest_one(self):
        with group({"double": lambda x: x * 2}) as (a, _), a.context() as context:
            loss = a.call("b", "double", distag.tensor([1.0], requires_grad=True)).sum()
            with self.assertRaises(distag.GaveUpError):
                context.backward(loss, timeout=0)

    def test_a_huge_timeout_waits(self):
        with group({"one": lambda: 1}) as (a, _):
            self.assertEqual(a.call("b", "one", timeout=1e300), 1)
            self.assertEqual(a.call_async("b", "one", timeout=1e10).result(1e12), 1)


class Statuses(unittest.TestCase):
    def test_a_status_that_does_not_fit_is_no_success(self):
        def fail():
            raise distag.UserError("text", 2**32)

        with group([fail]) as (a, _), self.assertRaisesRegex(distag.UserError, "text") as raised:
            a.call("b", "fail")
        self.assertEqual(raised.exception.code, distag.Status.USER)


if __name__ == "__main__":
    unittest.main()
