"""What somebody who has read the README alone gets wrong first: each is an error that names the argument."""
import asyncio
import unittest
from datetime import timedelta

import distag
from support import group


def echo(x):
    return x


class Tensors(unittest.TestCase):
    def test_sizes_are_one_list_and_a_number_is_no_dtype(self):
        for make in (distag.zeros, distag.ones, lambda *sizes: distag.rand(1, *sizes),
                     lambda *sizes: distag.randn(1, *sizes), lambda *sizes: distag.full(1.0, *sizes)):
            self.assertEqual(make((2, 3)).shape, (2, 3))
            for sizes in ((2, 3), (2, 1), (2, "float32"), (2, None)):
                with self.subTest(sizes), self.assertRaisesRegex(
                        distag.UsageError, "dtype: distag.float32, .* is wanted, not .* sizes is one list"):
                    make(*sizes)
        x = distag.ones((2,))
        with self.assertRaisesRegex(distag.UsageError, "dtype: .* not 'int64'"):
            x.cast("int64")
        self.assertIs(x.cast(distag.int64).dtype, distag.int64)

    def test_a_generator_of_tensors_is_a_list_of_them(self):
        x = distag.arange(0, 2)
        self.assertEqual(distag.concat(part for part in (x, x)).tolist(), [0, 1, 0, 1])
        with distag.no_grad():
            self.assertEqual(distag.stack(iter([x, x])).shape, (2, 2))
        for given, words in ((5, "a list of tensors is wanted, not an int"), (x, "not one tensor"),
                             ((part for part in (x, 1)), "item 1 is an int")):
            with self.assertRaisesRegex(distag.UsageError, words):
                distag.concat(given)


class Optimizers(unittest.TestCase):
    def test_the_worker_and_the_list_of_parameters_are_named(self):
        x = distag.ones((2,)).requires_grad_()
        for arguments, words in ((("a", [x]), "worker: a worker or None is wanted, not a str"),
                                 (([x], [x]), "worker: a worker or None is wanted, not a list"),
                                 ((None, x), "parameters: a list is wanted"), ((None, [3]), "is no parameter"),
                                 ((None, []), "there are no parameters")):
            with self.assertRaisesRegex(distag.UsageError, words):
                distag.optim.SGD(*arguments, lr=1)


class Calls(unittest.TestCase):
    def test_the_worker_that_is_called_is_a_name_or_a_rank(self):
        with group([echo]) as (a, _):
            self.assertEqual([a.call("b", "echo", 1), a.call(1, "echo", 2), a.member(1).name], [1, 2, "b"])
            for to in (None, 1.0, ["b"], a):
                for function in (lambda to: a.call(to, "echo", 1), a.member):
                    with self.subTest(to), self.assertRaisesRegex(
                            distag.UsageError, "the name or the rank of a worker is wanted, not "):
                        function(to)
            with self.assertRaisesRegex(distag.UsageError, "no worker of rank 7"):
                a.call(7, "echo", 1)
            with self.assertRaisesRegex(distag.UsageError, "member: 1099511627776 does not fit"):
                a.member(2**40)

    def test_wait_all_takes_futures(self):
        with group([echo]) as (a, _):
            future = a.call_async("b", "echo", 1)
            for given in ([future, 3], [None], [asyncio.sleep]):
                with self.assertRaisesRegex(distag.UsageError, f"wait_all: item {len(given) - 1} is (an int|None|a function), not a future"):
                    distag.wait_all(given)
            self.assertEqual(distag.wait_all(iter([future])), [1])
            with self.assertRaisesRegex(distag.UsageError, "a list of futures is wanted, not one future"):
                distag.wait_all(future)

    def test_what_is_called_later_is_a_function(self):
        declared = dict(distag.functions.declared)
        with group([echo]) as (a, _):
            for name, take in (("add_done_callback", a.call_async("b", "echo", 1).add_done_callback),
                               ("then", a.call_async("b", "echo", 1).then),
                               ("register", lambda it: a.register(it, "register")),
                               ("add_hook", distag.ones(()).requires_grad_().add_hook),
                               ("log", lambda it: distag.Worker("x", rank=0, world_size=1, log=it)),
                               ("on_member", lambda it: distag.Worker("x", rank=0, world_size=1, on_member=it)),
                               ('function "n"', distag.function("n"))):
                with self.subTest(name), self.assertRaisesRegex(distag.UsageError,
                                                                f"{name}: a function is wanted, not an int"):
                    take(3)
        self.assertEqual(distag.functions.declared, declared)
        for wrong in (3, "abc", echo):
            with self.assertRaisesRegex(distag.UsageError, "functions: a list of functions, or a dict"):
                distag.Worker("x", rank=0, world_size=1, functions=wrong)
        with self.assertRaisesRegex(distag.UsageError, r"executor is one of pool, host, not \[\]"):
            distag.Worker("x", rank=0, world_size=1, executor=[])

    def test_ranks_are_a_list_of_integers(self):
        with group() as (a, b):
            later = b.all_gather_async(2, ranks=[0, 1])
            self.assertEqual(a.all_gather(1, ranks=(rank for rank in (0, 1))), [1, 2])
            self.assertEqual(later.result(), [1, 2])
            for wrong in ("ab", 1.5, {0: 1}):
                with self.assertRaisesRegex(distag.UsageError, "ranks: integers are wanted"):
                    a.all_gather(1, ranks=wrong)

    def test_leave_takes_times_as_all_do(self):
        for limit in (timedelta(seconds=5), None, distag.FOREVER, 5):
            with distag.Worker("x", rank=0, world_size=1, rendezvous="inproc://leave") as worker:
                self.assertTrue(worker.leave(limit))
        with distag.Worker("x", rank=0, world_size=1, rendezvous="inproc://leave") as worker:
            with self.assertRaisesRegex(distag.UsageError, "a duration is a number of seconds"):
                worker.leave("5")


class Classes(unittest.TestCase):
    def test_objects_of_the_library_are_not_made_by_their_classes(self):
        for kind, maker in ((distag.Tensor, "distag.tensor"), (distag.RRef, "worker.remote"), (distag.Future, "_async"),
                            (distag.Reply, "defer"), (distag.Gradients, "gradients")):
            for wrong in (3, [1.0, 2.0], None):
                with self.subTest(kind), self.assertRaisesRegex(TypeError, f"is no handle: .*{maker}"):
                    kind(wrong)
        with self.assertRaisesRegex(distag.UsageError, "worker: a worker or None is wanted, not a str"):
            distag.Context("worker")


if __name__ == "__main__":
    unittest.main()
