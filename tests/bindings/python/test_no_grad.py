"""Blocks in which nothing is recorded, and first values of parameters."""
import asyncio
import inspect
import math
import threading
import unittest

import distag
from distag import init
from support import group
from test_meshes import on_members


class NoGrad(unittest.TestCase):
    def setUp(self):
        self.x = distag.tensor([2.0, 3.0], distag.float64, requires_grad=True)

    def test_ops_in_the_block_have_no_history(self):
        self.assertTrue(distag.is_grad_enabled())
        with distag.no_grad():
            self.assertFalse(distag.is_grad_enabled())
            for result in ((self.x * self.x).sum(), distag.concat([self.x, self.x], 0), self.x[0],
                           distag.linear(self.x.reshape(1, 2), self.x.reshape(1, 2), None),
                           *distag.apply("add", [self.x, self.x], {}), Twice()(self.x)):
                self.assertFalse(result.requires_grad)
            with distag.no_grad():
                self.assertFalse((self.x * 2).requires_grad)
            self.assertFalse((self.x * 2).requires_grad)  # the inner one has ended
        self.assertTrue(self.x.requires_grad)
        self.assertTrue((self.x * 2).requires_grad)

    def test_values_are_those_of_recorded_ops(self):
        with distag.no_grad():
            plain = (self.x * self.x).sum().item()
        self.assertEqual(plain, (self.x * self.x).sum().item())

    def test_a_part_can_be_written(self):
        with distag.no_grad():
            self.x[0] = 7.0
        self.assertEqual(self.x.tolist(), [7.0, 3.0])

    def test_decorator_recursion_and_errors(self):
        @distag.no_grad()
        def doubled(depth):
            return doubled(depth - 1) if depth else self.x * 2

        self.assertFalse(doubled(3).requires_grad)
        with self.assertRaises(ZeroDivisionError), distag.no_grad():
            1 / 0
        self.assertTrue((self.x * 2).requires_grad)

    def test_decorated_coroutines_run_in_a_block(self):
        @distag.no_grad()
        async def doubled(x):
            """Doubles."""
            await asyncio.sleep(0)
            return x * 2

        class Doubler:
            async def __call__(self, x):
                return await doubled(x)

        async def program():
            both = await asyncio.gather(doubled(self.x), distag.no_grad()(Doubler())(self.x))
            return both, (self.x * 2).requires_grad

        both, outside = asyncio.run(program())
        self.assertEqual([result.requires_grad for result in both], [False, False])
        self.assertTrue(outside)
        self.assertTrue(inspect.iscoroutinefunction(doubled))
        self.assertEqual((doubled.__name__, doubled.__doc__), ("doubled", "Doubles."))

    def test_generators_are_not_decorated(self):
        def numbers():
            yield 1

        async def later():
            yield 1

        for function in (numbers, later):
            with self.assertRaisesRegex(TypeError, f"no_grad: {function.__name__} .* inside"):
                distag.no_grad()(function)

    def test_threads_and_coroutines_share_one_object(self):
        shared, entered, left, found = distag.no_grad(), threading.Event(), threading.Event(), []

        def other():
            with shared:
                entered.set()
                left.wait(120)
                found.append(distag.is_grad_enabled())
            found.append(distag.is_grad_enabled())

        thread = threading.Thread(target=other)
        with shared:
            thread.start()
            entered.wait(120)
        self.assertTrue(distag.is_grad_enabled())
        left.set()
        thread.join()
        self.assertEqual(found, [False, True])

        async def crossed(first, second):
            with shared, shared:
                first.set()
                await second.wait()
            return distag.is_grad_enabled()

        async def program():
            one, two, three = asyncio.Event(), asyncio.Event(), asyncio.Event()
            three.set()
            return await asyncio.gather(crossed(one, two), crossed(two, three))

        self.assertEqual(asyncio.run(program()), [True, True])

    def test_a_generator_that_is_left_early_ends_its_block(self):
        async def numbers():
            with distag.no_grad():
                yield 1
                yield 2

        async def program():
            problems = []
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
            async for _ in numbers():
                break
            for _ in range(5):  # the event loop closes the generator in a task of its own
                await asyncio.sleep(0)
            with distag.no_grad():
                self.assertFalse(distag.is_grad_enabled())
            return problems, distag.is_grad_enabled()

        self.assertEqual(asyncio.run(program()), ([], True))

    def test_a_task_begun_in_a_block_stays_in_it(self):
        async def grad():
            return distag.is_grad_enabled()

        async def program():
            with distag.no_grad():
                task = asyncio.create_task(grad())
            return await task, await asyncio.create_task(grad())

        self.assertEqual(asyncio.run(program()), (False, True))

    def test_blocks_may_end_in_any_order(self):
        first, second = distag.no_grad(), distag.no_grad()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        self.assertFalse(distag.is_grad_enabled())
        second.__exit__(None, None, None)
        self.assertTrue(distag.is_grad_enabled())

    def test_other_threads_record(self):
        found = []
        with distag.no_grad():
            other = threading.Thread(target=lambda: found.append((self.x * 2).requires_grad))
            other.start()
            other.join()
        self.assertEqual(found, [True])

    def test_calls_in_the_block_belong_to_no_context(self):
        with group({"double": lambda x: x * 2}) as (a, _):
            with a.context() as context:
                with distag.no_grad():
                    self.assertIsNone(distag.current_context())
                    self.assertFalse(a.call("b", "double", self.x).requires_grad)
                    named = a.call("b", "double", self.x, context=context)
                self.assertTrue(named.requires_grad)
                context.backward((named + a.call("b", "double", self.x)).sum())
                self.assertEqual(context.gradient(self.x).tolist(), [4.0, 4.0])

    def test_parts_of_sharded_tensors_in_the_block_have_no_history(self):
        def program(worker, mesh):
            x = mesh.shard(distag.ones((4, 2)), ("data", None)).requires_grad_()
            part = distag.ones((2, 2)).requires_grad_()
            with distag.no_grad():
                made = [x.local(), x.local(gradient_spec=("data", None)), distag.from_local(part, mesh, ("data", None)),
                        distag.from_local(part, mesh, ("data", None), gradient_spec=("data", None))]
            self.assertEqual([result.requires_grad for result in made], [False] * 4)
            self.assertEqual([result.shape for result in made], [(2, 2), (2, 2), (4, 2), (4, 2)])
            self.assertTrue(x.local().requires_grad)
            self.assertTrue(distag.from_local(part, mesh, ("data", None)).requires_grad)
            made[0].assign(5.0)  # without a copy, as ever
            return x.gather().tolist()

        self.assertEqual(on_members(program, names=("a", "b"), shape=(-1,), axes=("data",)), [[[5.0] * 2] * 4] * 2)

    def test_sharded_parameters_are_placed_as_when_recorded(self):
        def program(worker, mesh):
            x = mesh.shard(distag.rand(1, (8, 4)), ("data", None))
            weight = mesh.shard(distag.rand(2, (6, 4)), ("data", None)).requires_grad_()
            bias = mesh.shard(distag.rand(3, (6,)), ("data",)).requires_grad_()
            plain = distag.ones((6,)).requires_grad_()

            def results():
                y = distag.linear(x, weight, bias)
                with distag.no_grad():
                    whole = y + plain
                return [y, distag.concat([weight, weight], 1), *distag.split(weight, (2, 2), 1),
                        *distag.apply("linear", [x, weight, bias], {}), weight.mean(), whole]

            recorded = results()
            before = mesh.stats()
            with distag.no_grad():
                unrecorded = results()
                moment = weight * 0.5
                moment.assign(7.0)
            after = mesh.stats()
            self.assertEqual([y.requires_grad for y in recorded], [True] * 6 + [False])
            self.assertEqual([y.requires_grad for y in unrecorded], [False] * 7)
            self.assertFalse(moment.requires_grad)
            self.assertEqual([y.spec for y in unrecorded], [y.spec for y in recorded])
            for one, other in zip(unrecorded, recorded, strict=True):
                self.assertEqual(one.gather().tolist(), other.gather().tolist())
            return after["hidden_moves"] - before["hidden_moves"]

        self.assertEqual(on_members(program, names=("a", "b"), shape=(-1,), axes=("data",), hidden_moves="refuse"),
                         [0, 0])

    def test_what_is_no_tensor_is_still_told(self):
        with distag.no_grad():
            with self.assertRaisesRegex(distag.UsageError, "a tensor is wanted, not a str"):
                distag.exp("x")
            with self.assertRaisesRegex(distag.UsageError, "item 1 is an int"):
                distag.concat([self.x, 1], 0)


class Twice(distag.CustomOp):
    def forward(self, x):
        return x * 2

    def backward(self, gradient):
        return gradient * 2


class Init(unittest.TestCase):
    def test_bounds_and_deviations(self):
        weight = distag.zeros((400, 100, 2)).requires_grad_()
        same = init.xavier_uniform_(weight, seed=3)
        self.assertIs(same, weight)
        bound = math.sqrt(6 / 1000)
        self.assertTrue(0.99 * bound < weight.max().item() < bound)
        self.assertTrue(-bound <= weight.amin().item() < -0.99 * bound)
        self.assertAlmostEqual(init.xavier_normal_(weight, gain=2.0, seed=4).std().item(), 2 * math.sqrt(2 / 1000), 3)
        bound = math.sqrt(2) * math.sqrt(3 / 200)
        self.assertTrue(0.99 * bound < init.kaiming_uniform_(weight, seed=5).max().item() < bound)
        self.assertAlmostEqual(init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu").std().item(),
                               math.sqrt(2 / 800), 3)
        self.assertAlmostEqual(init.normal_(weight, 5.0, 0.1).mean().item(), 5.0, 2)
        self.assertTrue(2.0 <= init.uniform_(weight, 2.0, 3.0).amin().item() < 2.01)
        self.assertTrue(weight.requires_grad)

    def test_a_seed_gives_the_same_values(self):
        a, b = distag.zeros((3, 4)), distag.zeros((3, 4))
        for draw in (init.uniform_, init.normal_, init.xavier_uniform_, init.orthogonal_):
            self.assertEqual(draw(a, seed=7).tolist(), draw(b, seed=7).tolist())
        self.assertNotEqual(init.normal_(a).tolist(), init.normal_(b).tolist())

    def test_orthogonal(self):
        for shape in ((6, 20), (20, 6), (5, 5), (4, 2, 3)):
            weight = init.orthogonal_(distag.zeros(shape, distag.float64), gain=3.0, seed=1).reshape(shape[0], -1)
            product = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
            for i, row in enumerate(product.tolist()):
                for j, value in enumerate(row):
                    self.assertAlmostEqual(value, 9.0 * (i == j), 12)
        self.assertEqual(init.orthogonal_(distag.zeros((0, 3))).shape, (0, 3))

    def test_zeros_ones_and_gains(self):
        weight = distag.zeros((2, 2))
        self.assertEqual(init.ones_(weight).tolist(), [[1, 1], [1, 1]])
        self.assertEqual(init.zeros_(weight).tolist(), [[0, 0], [0, 0]])
        self.assertEqual(init.calculate_gain("relu"), math.sqrt(2))
        for layer in ("linear", "conv1d", "conv2d", "conv_transpose2d"):
            self.assertEqual(init.calculate_gain(layer), 1.0)
        self.assertEqual(init.calculate_gain("leaky_relu", 1.0), 1.0)
        self.assertIs(distag.nn.init, init)

    def test_sharded_tensors_are_initialised_before(self):
        def program(worker, mesh):
            for spec in (("data", None), (None, None)):
                weight = mesh.shard(init.xavier_uniform_(distag.zeros((4, 2)), seed=1), spec)
                before = weight.gather().tolist()
                for draw in (init.uniform_, init.normal_, init.xavier_uniform_, init.xavier_normal_,
                             init.kaiming_uniform_, init.kaiming_normal_, init.orthogonal_):
                    with self.assertRaisesRegex(distag.UsageError, "init: .* before mark_sharding"):
                        draw(weight)
                self.assertEqual(weight.gather().tolist(), before)
                self.assertEqual(init.zeros_(weight).gather().tolist(), [[0, 0]] * 4)
            return before

        found = on_members(program, names=("a", "b"), shape=(-1,), axes=("data",))
        self.assertEqual(found[0], found[1])

    def test_bad_input_changes_nothing(self):
        vector, numbers = distag.ones((3,)), distag.ones((2, 2), distag.int64)
        for wrong, what in ((lambda: init.xavier_uniform_(vector), "at least 2 dims"),
                            (lambda: init.kaiming_normal_(distag.ones((0, 3))), "no fan"),
                            (lambda: init.normal_(numbers), "floats"),
                            (lambda: init.kaiming_uniform_(distag.ones((2, 2)), mode="fan"), "fan_in or fan_out"),
                            (lambda: init.calculate_gain("gelu"), "give one of")):
            with self.assertRaisesRegex(distag.UsageError, what):
                wrong()
        self.assertEqual(vector.tolist(), [1, 1, 1])
        self.assertEqual(numbers.tolist(), [[1, 1], [1, 1]])


if __name__ == "__main__":
    unittest.main()
