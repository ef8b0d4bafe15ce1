"""The package as its users see it: tensors, futures and event loops, the host executor, optimizers, layers, torch's
names."""
import asyncio
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import distag
from distag import autograd, functions, nn, optim, rpc
from support import group, near


class Layer:
    def __init__(self, inputs, outputs):
        self.weight = distag.randn(1, (inputs, outputs)).requires_grad_()

    def parameters(self):
        return [self.weight]


def memory_in_use():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def double(x):
    return x * 2


class Environments(unittest.TestCase):
    def test_the_place_that_a_launcher_gives(self):
        own = {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        with mock.patch.dict(os.environ, own, clear=True):
            self.assertEqual(distag.get_environment(), (1, 3, 0, 1, -1, 0, 0, "torchrun"))
        with mock.patch.dict(os.environ, {"RANK": "1"}, clear=True), self.assertRaisesRegex(
                distag.UsageError, r"WORLD_SIZE \(RANK is set\)"):
            distag.get_environment()


class Tensors(unittest.TestCase):
    def test_operators(self):
        x = distag.tensor([1.0, 2.0, 4.0])
        for found, expected in ((x + 1, [2, 3, 5]), (1 + x, [2, 3, 5]), (x - 1, [0, 1, 3]), (1 - x, [0, -1, -3]),
                                (x * 2, [2, 4, 8]), (x / 2, [0.5, 1, 2]), (8 / x, [8, 4, 2]), (x ** 2, [1, 4, 16]),
                                (2 ** x, [2, 4, 16]), (-x, [-1, -2, -4]), (abs(-x), [1, 2, 4]), (x + x, [2, 4, 8])):
            near(found.tolist(), expected)
        for found, expected in ((x > 2, [False, False, True]), (x >= 2, [False, True, True]), (2 > x, [True, False, False]),
                                (x < distag.tensor([4.0]), [True, True, False]), (x <= [0, 2, 9], [False, True, True]),
                                (distag.tensor([1, 2]) > 1.5, [False, True])):
            self.assertEqual((found.dtype, found.tolist()), (distag.bool_, expected))
        with self.assertRaises(TypeError):
            x < "a"
        self.assertEqual((distag.tensor([1, 2]) + 2.5).dtype, distag.float32)
        self.assertEqual((distag.tensor([1, 2]) * 3).tolist(), [3, 6])

    def test_parts_are_views(self):
        x = distag.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        self.assertEqual(x[1].tolist(), [4, 5, 6])
        self.assertEqual(x[-1, -1].item(), 6)
        self.assertEqual(x[:, 1:].tolist(), [[2, 3], [5, 6]])
        self.assertEqual(x[..., 0].tolist(), [1, 4])
        self.assertEqual(x[:, None].shape, (2, 1, 3))
        self.assertEqual(x[distag.tensor([1, 1])].tolist(), [[4, 5, 6], [4, 5, 6]])
        x[0] = 9
        x[:, 2] = distag.tensor([7.0, 8.0])
        self.assertEqual(x.tolist(), [[9, 9, 7], [4, 5, 8]])
        self.assertEqual([row.tolist() for row in x], [[9, 9, 7], [4, 5, 8]])
        with self.assertRaises(IndexError):
            x[2]
        with self.assertRaises(IndexError):
            x[0, 0, 0]

    def test_broadcasting_and_promotion(self):
        x = distag.tensor([[1.0], [2.0]]) + distag.tensor([10, 20, 30])
        self.assertEqual(x.tolist(), [[11, 21, 31], [12, 22, 32]])
        self.assertEqual(x.dtype, distag.float32)

    def test_objects_of_one_tensor_are_equal_and_keys(self):
        with group({"echo": lambda x: x}) as (a, _):
            x = distag.tensor([1.0])
            reference = a.rref(x)
            self.assertEqual({x: 1}[reference.local()], 1)
        self.assertNotEqual(x, distag.tensor([1.0]))

    def test_what_is_no_tensor_is_refused(self):
        for data in ([[1.0], [2.0, 3.0]], [[1], 2], ["a"], [2**63]):
            with self.assertRaises(distag.UsageError):
                distag.tensor(data)
        with self.assertRaises(TypeError):
            distag.tensor([1.0]) + "a"
        with self.assertRaises(distag.UsageError):
            distag.tensor([1.0, 2.0]).write([1.0])

    def test_numpy_both_ways(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not here")
        array = numpy.arange(6, dtype="float32").reshape(2, 3)
        x = distag.tensor(array[:, ::2])
        self.assertEqual(x.tolist(), [[0, 2], [3, 5]])
        seen = numpy.asarray(x)
        self.assertFalse(seen.flags.writeable)
        numpy.testing.assert_array_equal(seen, array[:, ::2])
        self.assertEqual(distag.from_numpy(array[:, 1:]).tolist(), [[1, 2], [4, 5]])
        self.assertEqual(distag.tensor(numpy.zeros((0, 2))).shape, (0, 2))
        with self.assertRaises(distag.UnsupportedError):
            distag.tensor(numpy.zeros(2, dtype="complex64"))

    def test_views_share_the_memory_of_a_snapshot(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not here")
        x = distag.ones((16, 1024, 1024))  # 64 MiB
        before = memory_in_use()
        view, second = numpy.asarray(x), x.snapshot().numpy()
        self.assertLess(memory_in_use() - before, 8 * 2**20)
        self.assertEqual(view.ctypes.data, second.ctypes.data)
        x[0, 0, 0] = 7
        self.assertEqual((float(view[0, 0, 0]), float(x[0, 0, 0])), (1.0, 7.0))
        self.assertEqual(distag.tensor([[1.0, 2.0], [3.0, 4.0]]).T.numpy().tolist(), [[1, 3], [2, 4]])
        self.assertEqual(distag.tensor(2.5).numpy().shape, ())
        self.assertEqual(distag.zeros((0, 3)).numpy().shape, (0, 3))

    def test_dlpack_both_ways(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not here")
        handles = distag.handle_count()
        x = distag.tensor([[1.0, 2.0], [3.0, 4.0]])
        self.assertEqual(numpy.from_dlpack(x).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(distag.from_dlpack(numpy.arange(6.0).reshape(2, 3).T).tolist(), [[0, 3], [1, 4], [2, 5]])
        for max_version in (None, (1, 0)):
            capsule = x.__dlpack__(max_version=max_version)
            shared = distag.from_dlpack(capsule)
            x.write([[5, 6], [7, 8]])
            self.assertEqual(shared.tolist(), [[1, 2], [3, 4]])
            with self.assertRaises(distag.UsageError):
                distag.from_dlpack(capsule)  # it is empty now
            x.write([[1, 2], [3, 4]])
            x.__dlpack__(max_version=max_version)  # and nobody takes it
        with self.assertRaises(BufferError):
            x.__dlpack__(copy=False)
        del x, shared, capsule
        self.assertEqual(distag.handle_count(), handles)

    def test_works_without_numpy(self):
        program = ("import sys; sys.modules['numpy'] = None; import distag, array\n"
                   "x = distag.tensor(array.array('f', [1, 2, 3])) * 2\n"
                   "assert x.tolist() == [2, 4, 6] and repr(x) == 'distag.Tensor([2.0, 4.0, 6.0], float32)'\n"
                   "assert 'asyncio' not in sys.modules")
        subprocess.run([sys.executable, "-B", "-X", "dev", "-W", "error", "-c", program], check=True, timeout=240)


class Futures(unittest.TestCase):
    def test_are_awaited_from_any_loop(self):
        async def gather(worker):
            return await asyncio.gather(*[worker.call_async("b", "double", each) for each in range(20)])

        with group([double]) as (a, _):
            for _ in range(2):
                self.assertEqual(asyncio.run(gather(a)), [2 * each for each in range(20)])

    def test_a_task_that_is_cancelled_cancels_its_call(self):
        async def give_up(worker):
            await asyncio.wait_for(worker.call_async("b", "wait"), 0.05)

        def wait():
            call = distag.current_call()
            while not call.is_cancelled:
                threading.Event().wait(0.002)

        with group([wait]) as (a, _), self.assertRaises(asyncio.TimeoutError):
            asyncio.run(give_up(a))

    def test_functions_may_answer_with_a_future(self):
        def ask_back(x):
            return distag.current_call().worker.call_async("a", "double", x)

        with group([double, ask_back]) as (a, _):
            self.assertEqual(a.call("b", "ask_back", 4), 8)

    def test_functions_may_be_coroutines(self):
        async def twice(x):
            worker = distag.current_call().worker
            return sum(await asyncio.gather(worker.call_async("a", double, x), worker.call_async("a", double, x)))

        with group([double, twice]) as (a, _):
            self.assertEqual(a.call("b", "twice", 4), 16)

    def test_a_traceparent_reaches_the_function_and_the_calls_that_it_makes(self):
        def last():
            return distag.current_call().traceparent

        def ask_back(**options):
            return distag.current_call().worker.call("a", "last", **options)

        async def ask_twice():
            worker = distag.current_call().worker
            return [await worker.call_async("a", "last"), await worker.call_async("a", "last")]

        given, other = (f"00-{'4bf92f3577b34da6' * 2}-00f067aa0ba902b7-0{flag}" for flag in (0, 1))
        with group({"last": last, "ask_back": ask_back, "ask_with": lambda t: ask_back(traceparent=t),
                    "ask_twice": ask_twice}) as (a, b):
            self.assertEqual(a.call("b", "ask_twice", traceparent=given), [given, given])
            self.assertIsNone(a.call("b", "last"))
            self.assertEqual(a.call("b", "last", traceparent=given), given)
            self.assertEqual(a.call("b", "ask_back", traceparent=given), given)
            self.assertEqual(a.call("b", "ask_with", other, traceparent=given), other)
            self.assertIsNone(a.call("b", "ask_with", "", traceparent=given))
            self.assertEqual(a.remote("b", "last", traceparent=given).fetch(), given)
            self.assertIsNone(a.call("b", "last", traceparent=given.upper()))
            self.assertEqual([each.stats()["traceparents_dropped"] for each in (a, b)], [1, 0])
            with self.assertRaises(distag.UsageError):
                a.call("b", "last", traceparent="no\0text")

    def test_wait_all_gives_the_first_failure(self):
        with group({"fail": lambda: 1 // 0, "one": lambda: 1}) as (a, _):
            with self.assertRaisesRegex(distag.UserError, "ZeroDivisionError"):
                distag.wait_all([a.call_async("b", "one"), a.call_async("b", "fail")], 10)

    def test_a_deadline_says_how_long_it_was(self):
        release = threading.Event()
        with group({"wait": lambda: release.wait(120) and None}) as (a, _):
            future = a.call_async("b", "wait")
            with self.assertRaisesRegex(distag.GaveUpError, "not complete after 120 ms"):
                future.result(0.12)
            release.set()
            self.assertIsNone(future.result(120))

    def test_the_host_executor_by_hand(self):
        a = distag.Worker("a", rank=0, world_size=1, rendezvous="inproc://hand", executor="host", functions=[double])
        a.start()
        while True:
            try:
                a.poll()
                a.wait(0.01)
            except distag.GaveUpError as late:
                self.assertIn("nothing to run after 10 ms", late.message)
                break
        future = a.call_async("a", "double", 4)
        a.wait(120)
        self.assertGreater(a.poll(), 0)
        self.assertEqual(future.result(), 8)
        a.shutdown()
        a.close()

    def test_the_host_executor_in_an_event_loop(self):
        async def serve(a, b):
            for worker in (a, b):
                worker.attach(asyncio.get_running_loop())
            return await a.call_async("b", "double", 21)

        ab = [distag.Worker(name, rank=rank, world_size=2, rendezvous="inproc://host", executor="host",
                            functions=[double]) for rank, name in enumerate("ab")]
        distag.wait_all([worker.start_async() for worker in ab], 30)
        self.assertEqual(asyncio.run(serve(*ab)), 42)
        distag.wait_all([worker.shutdown_async(120) for worker in ab])
        for worker in ab:
            worker.close()


class Training(unittest.TestCase):
    def test_an_object_behind_a_reference_is_stepped_where_it_lives(self):
        made = []

        def make_layer(*sizes):
            made.append(Layer(*sizes))
            return made[0]

        def forward(x, layer):
            return x @ layer.local().weight

        with group([make_layer, forward]) as (a, _), a.context() as context:
            layer = a.remote("b", "make_layer", 3, 2)
            x = distag.ones((1, 3))
            before = None
            loss = a.call("b", "forward", x, layer).sum()
            before = made[0].weight.tolist()
            context.backward(loss)
            optim.SGD(a, [layer], lr=0.5).step(context)
        near(made[0].weight.tolist(), [[each - 0.5 for each in row] for row in before], 1e-6)

    def test_parameters_may_come_from_a_generator(self):
        class Model:
            def __init__(self):
                self.weights = [distag.ones((1,)).requires_grad_(), distag.ones((1,)).requires_grad_()]

            def parameters(self):
                yield from self.weights

        model = Model()
        with group({"make": lambda: model, "loss": lambda: (model.weights[0] + model.weights[1]).sum()}) as (a, _):
            sgd = optim.SGD(a, [a.remote("b", "make")], lr=0.5)
            for _ in range(2):
                with a.context() as context:
                    context.backward(a.call("b", "loss"))
                    sgd.step(context)
        self.assertEqual([each.item() for each in model.weights], [0.0, 0.0])

    def clip(self, worker):
        x = distag.tensor([3.0, 4.0], requires_grad=True)
        adam = optim.Adam(worker, [x])
        with distag.Context(worker) as context:
            context.backward((x * x * 0.5).sum())
            self.assertAlmostEqual(adam.clip(context, 1.0), 5.0)
            near(context.gradient(x).tolist(), [0.6, 0.8], 1e-6)

    def test_clip_scales_the_gradients(self):
        self.clip(None)
        with group() as (a, _):
            self.clip(a)

    def step(self, worker, adam, x, scale):
        with distag.Context(worker) as context:
            context.backward((x * x * scale).sum())
            adam.step(context)

    def save_and_load(self, worker):
        """One optimizer goes on; another begins with its state, and does the same, or with none, and does not."""
        x = distag.tensor([3.0, 4.0], requires_grad=True)
        adam = optim.Adam(worker, [x], lr=0.1, betas=(0.8, 0.9))
        self.step(worker, adam, x, 1.0)
        state, values = adam.save(), x.tolist()
        self.step(worker, adam, x, 0.01)
        for is_loaded in (True, False):
            y = distag.tensor(values, requires_grad=True)
            other = optim.Adam(worker, [y], lr=0.1, betas=(0.8, 0.9))
            if is_loaded:
                other.load(state)
            self.step(worker, other, y, 0.01)
            self.assertEqual(y.tolist() == x.tolist(), is_loaded)

    def test_settings_may_be_pairs_as_in_pytorch(self):
        x = distag.tensor([1.0], requires_grad=True)
        rprop = optim.Rprop(None, [x], lr=0.1, etas=(0.25, 3.0), step_sizes=(0.01, 0.2))
        settings = rprop.save()["settings"]
        names = ("etaminus", "etaplus", "step_size_min", "step_size_max")
        self.assertEqual([settings[name] for name in names], [0.25, 3.0, 0.01, 0.2])
        with self.assertRaisesRegex(distag.DistagError, "etas are two numbers, not 0.5"):
            rprop.set(etas=0.5)

    def test_a_state_that_is_loaded_goes_on(self):
        self.save_and_load(None)
        with group() as (a, _):
            self.save_and_load(a)

    def test_settings_that_there_are_not(self):
        adam = optim.Adam(None, [distag.ones((1,)).requires_grad_()])
        with self.assertRaises(distag.UsageError), adam:
            adam.set(speed=3)
        self.assertTrue(adam.is_closed)

    def test_layers(self):
        model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, seed=1), distag.relu, lambda x: x.reshape(1, -1),
                              nn.Linear(32, 4, seed=2))
        self.assertEqual([each.shape for each in model.parameters()], [(2, 1, 3, 3), (2,), (4, 32), (4,)])
        y = model(distag.rand(3, (1, 1, 4, 4)))
        with distag.Context() as context:
            context.backward(y.sum())
            self.assertEqual(len(context.gradients()), 4)

    def test_a_context_that_is_entered_is_not_entered_again(self):
        with group([double]) as (a, _):
            with a.context() as context:
                with self.assertRaisesRegex(distag.UsageError, "entered already"), context:
                    pass
                self.assertIs(distag.current_context(), context)
                self.assertEqual(a.call("b", "double", 2), 4)
            self.assertIsNone(distag.current_context())
            self.assertEqual(a.call("b", "double", 2), 4)

    def test_remote_roots(self):
        x = distag.tensor([2.0], requires_grad=True)
        with group({"square": lambda each: (each * each).sum()}) as (a, _), a.context() as context:
            loss = a.remote("b", "square", x)
            context.backward(loss)
            near(context.gradient(x).tolist(), [4.0])

    def test_names_of_torch(self):
        rpc.init_rpc("solo", rank=0, world_size=1, rpc_backend_options=rpc.BackendOptions(init_method="inproc://solo"))
        rpc.worker().register(double)
        x = distag.tensor([1.0, 2.0], requires_grad=True)
        with autograd.context() as context_id:
            loss = rpc.rpc_sync("solo", double, args=(x,)).sum()
            autograd.backward(context_id, [loss])
            self.assertEqual(autograd.get_gradients(context_id)[x].tolist(), [2, 2])
            autograd.DistributedOptimizer(optim.SGD, [x], lr=0.5).step(context_id)
        self.assertEqual(x.tolist(), [0, 1])
        self.assertEqual(rpc.rpc_async("solo", double, kwargs={"x": 4}).wait(), 8)
        self.assertEqual(rpc.remote("solo", double, args=(3,)).to_here(), 6)
        for timeout in (5, 0, -1):
            self.assertEqual(rpc.remote("solo", double, args=(3,)).to_here(timeout), 6)
        self.assertEqual(rpc.get_worker_info("solo"), ("solo", 0))
        with self.assertRaises(distag.UsageError):
            rpc.init_rpc("again", rank=0, world_size=1)
        rpc.shutdown()
        with self.assertRaises(distag.UsageError):
            rpc.rpc_sync("solo", double, args=(1,))


    def test_keywords_travel_by_their_places_or_not_at_all(self):
        def scale(x, by=2, plus=0, *, minus=0):
            return x * by + plus - minus

        def count(x, **others):
            return len(others)

        options = rpc.BackendOptions(init_method="inproc://keywords")
        rpc.init_rpc("solo", rank=0, world_size=1, rpc_backend_options=options)
        try:
            for function in (scale, count):
                rpc.worker().register(function)
            self.assertEqual(rpc.rpc_sync("solo", scale, kwargs={"plus": 1, "x": 4}), 9)
            for function, name in ((scale, "minus"), (count, "other")):
                with self.assertRaisesRegex(distag.UsageError, f"the argument {name} has no place"):
                    rpc.rpc_sync("solo", function, args=(4,), kwargs={name: 1})
        finally:
            rpc.shutdown()


class Adder:
    def __init__(self, number):
        self.number = number

    def __call__(self, x):
        return x + self.number

    def method(self, x):
        return x - self.number


class Names(unittest.TestCase):
    """Functions without a __name__, or without attributes."""

    def setUp(self):
        known = dict(functions.declared)
        self.addCleanup(functions.declared.update, known)
        self.addCleanup(functions.declared.clear)

    def test_partials_and_objects_are_offered_under_a_name(self):
        adder = distag.function("add_1")(Adder(1))
        partial = distag.function("twice")(functools.partial(double))
        with group(functions.declared) as (a, b):
            self.assertEqual((a.call("b", adder, 2), a.call("b", partial, 2)), (3, 4))
            b.register(Adder(5), "add_5")
            self.assertEqual(a.call("b", "add_5", 2), 7)

    def test_methods_and_functions_in_c_are_declared(self):
        method = distag.function(Adder(1).method)
        builtin = distag.function(len)
        with group(functions.declared) as (a, _):
            self.assertEqual((a.call("b", method, 2), a.call("b", builtin, [1, 2])), (1, 2))

    def test_without_a_name_they_are_refused(self):
        with group() as (a, _):
            for use in (lambda: distag.function(Adder(1)), lambda: a.register(functools.partial(double)),
                        lambda: a.call("b", Adder(1), 1)):
                with self.assertRaisesRegex(distag.UsageError, "has no name: give one"):
                    use()


class Groups(unittest.TestCase):
    def test_unregister_waits_for_the_calls_that_run(self):
        began, release, ended = threading.Event(), threading.Event(), []

        def wait():
            began.set()
            release.wait(120)
            ended.append(1)

        with group([wait]) as (a, b):
            future = a.call_async("b", "wait")
            self.assertTrue(began.wait(120))
            with self.assertRaisesRegex(distag.GaveUpError, "and a call of it still runs after 10 ms"):
                b.unregister(wait, 0.01)
            b.register(wait)
            began.clear()
            again = a.call_async("b", "wait")
            self.assertTrue(began.wait(120))
            threading.Timer(0.01, release.set).start()
            b.unregister(wait, 20)
            self.assertGreaterEqual(len(ended), 1)
            with self.assertRaises(distag.UsageError):
                b.unregister(wait)
            distag.wait_all([future, again], 10)

    def test_members_gathers_and_reports(self):
        seen = []
        with group(on_member=lambda member: seen.append(member.name)) as (a, b):
            self.assertEqual(a.member("b")[:3], (1, "b", "alive"))
            self.assertEqual((a.ranks(), a.world_size, a.rank, a.name), ([0, 1], 2, 0, "a"))
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(2) as pool:
                self.assertEqual(list(pool.map(lambda each: each.all_gather(each.name, timeout=120), (a, b))),
                                 [["a", "b"]] * 2)
        self.assertIn("b", seen)

    def test_a_gather_without_time_meets_the_other_right_after_one_that_ended(self):
        with group() as (a, b):
            for _ in range(100):
                of_a = [a.all_gather_async(number) for number in (1, 2)]
                self.assertEqual(b.all_gather(3), [1, 3])
                try:
                    second = b.all_gather(4, timeout=0)
                except distag.GaveUpError as error:  # `a` goes on to its next one at about the same time
                    self.assertIn('missing: worker "a"', str(error))
                    second = b.all_gather(4)
                self.assertEqual((second, of_a[1].result()), ([2, 4], [2, 4]))

    def test_an_open_world(self):
        options = dict(world_size=distag.OPEN_WORLD, rendezvous="inproc://open", functions=[double])
        with distag.Worker("one", **options) as one, distag.Worker("two", **options) as two:
            self.assertEqual(two.call("one", double, 2), 4)
            self.assertEqual(one.call("two", double, 3), 6)

    def test_a_worker_without_lanes(self):
        for no_lane, why in ((False, None), (True, "the worker's option no_lane")):
            with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ):
                os.environ.pop("DISTAG_LANE", None)
                with distag.Worker("w", rank=0, world_size=1, rendezvous=f"file://{folder}", no_lane=no_lane) as worker:
                    lane = worker.report()["lane"]
                    self.assertIn('distag_peers_lost_total{worker="w"} 0', worker.metrics().splitlines())
                    (member,) = worker.group_report()["members"]
                    self.assertEqual((member["silent"], member["report"]["worker"]["name"]), (None, "w"))
            self.assertEqual((lane["on"], lane.get("why")), (not no_lane, why))

    def test_a_trace(self):
        with tempfile.TemporaryDirectory() as folder, \
                distag.Worker("w", rank=0, world_size=1, rendezvous="inproc://traced") as worker:
            with worker.trace("before"):
                pass
            worker.start_trace(folder, max_bytes=1 << 20)
            with worker.trace("epoch \N{GREEK SMALL LETTER ALPHA}"), self.assertRaises(ZeroDivisionError):
                with worker.trace("step"):
                    raise ZeroDivisionError
            with self.assertRaisesRegex(distag.UsageError, "stop it first"):
                worker.start_trace(folder)
            worker.stop_trace()
            with open(os.path.join(folder, "w.trace.json"), encoding="utf-8") as file:
                events = json.load(file)
        self.assertEqual([event["name"] for event in events if event["ph"] == "b"],
                         ["step", "epoch \N{GREEK SMALL LETTER ALPHA}"])

    def test_an_engine_of_sockets(self):
        for engine in ("zmq", "zmtp"):
            with tempfile.TemporaryDirectory() as folder:
                with distag.Worker("w", rank=0, world_size=1, rendezvous=f"file://{folder}",
                                   socket_engine=engine) as worker:
                    self.assertEqual(worker.report()["sockets"]["engine"], engine)

    def test_options_that_are_none(self):
        for options in ({"executor": "thread"}, {"log_level": "loud"}, {"socket_engine": "raw"}, {"call_timeout": -1}, {"name": "a\0b"}):
            with self.assertRaises(distag.UsageError):
                distag.Worker(**{"rank": 0, "world_size": 1, **options})


if __name__ == "__main__":
    unittest.main()
