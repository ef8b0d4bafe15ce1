"""The names of torch.distributed.tensor, and what wrong arguments of sharded tensors are answered with."""
import os
import re
import unittest

import distag
from distag import Partial, Replicate, Shard, checkpoint, dtensor, nn, optim, rpc
from support import near
from test_meshes import numbers, on_members

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def lies(module):
    return {name: each.spec for name, each in module.state_dict().items()}


class Names(unittest.TestCase):
    def test_a_mesh_says_where_this_member_is(self):
        def program(worker, mesh):
            self.assertEqual((mesh.mesh_dim_names, mesh.mesh_dim_names), (mesh.axis_names, ("data", "model")))
            return mesh.get_coordinate()

        self.assertEqual(on_members(program), [[0, 0], [0, 1], [1, 0], [1, 1]])
        self.assertIsNone(distag.Mesh((2, 2)).get_coordinate())

    def test_a_mesh_is_made_of_all_workers(self):
        def program(worker, mesh):
            made = dtensor.init_device_mesh("cpu", (4,), mesh_dim_names=("dp",), worker=worker)
            found = made.shape, made.ranks
            made.close()
            return found

        self.assertEqual(on_members(program), [({"dp": 4}, [0, 1, 2, 3])] * 4)
        with self.assertRaisesRegex(distag.UsageError, "\"cpu\", not 'cuda'"):
            dtensor.init_device_mesh("cuda", (1,))
        rpc.init_rpc("solo", rank=0, world_size=1, rpc_backend_options=rpc.BackendOptions(init_method="inproc://dt"))
        self.assertEqual(dtensor.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",)).axis_names, ("dp",))
        rpc.shutdown()

    def test_a_tensor_says_how_it_lies(self):
        def program(worker, mesh):
            x = distag.distribute_tensor(numbers(4, 6), mesh, [Shard(0), Shard(1)])
            self.assertEqual((x.placements, x.device_mesh), ((Shard(0), Shard(1)), mesh))
            total = x.sum(dims=0)
            self.assertEqual(total.placements, (Partial(), Shard(0)))
            moved = x.redistribute(placements=[Replicate(), Shard(0)])
            self.assertEqual(moved.placements, (Replicate(), Shard(0)))
            other = mesh.shard(numbers(4, 6), (("model", "data"), None))
            with self.assertRaisesRegex(distag.UsageError, "another order"):
                other.placements
            for wrong in ({}, {"spec": "R, R", "placements": "R, R"}):
                with self.assertRaisesRegex(distag.UsageError, "one spec"):
                    x.redistribute(**wrong)
            return x.to_local().tolist() == x.local().tolist(), total.full_tensor().tolist()

        expected = [[sum(row * 6 + column for row in range(4)) for column in range(6)]]
        self.assertEqual(on_members(program), [(True, *expected)] * 4)
        self.assertEqual((numbers(2, 2).placements, numbers(2, 2).device_mesh), (None, None))

    def test_a_full_tensor_has_a_history(self):
        def program(worker, mesh):
            x = mesh.shard(numbers(4, 6), ("data", "model")).requires_grad_()
            with mesh.context() as context:
                whole = x.full_tensor()
                rows = distag.from_local(whole * whole, mesh, (None, None), shape=(4, 6))
                context.backward(rows.sum())
                return context.gradient(x).gather().tolist()

        self.assertEqual(on_members(program), [(numbers(4, 6) * 2.0).tolist()] * 4)

    def test_factories_give_the_numbers_of_the_plain_ones(self):
        def program(worker, mesh):
            options = {"device_mesh": mesh, "placements": [Shard(0), Shard(1)], "dtype": distag.float64}
            made = {"zeros": dtensor.zeros(4, 6, **options), "ones": dtensor.ones((4, 6), **options),
                    "full": dtensor.full((4, 6), 2.5, **options), "rand": dtensor.rand(4, 6, seed=3, **options),
                    "randn": dtensor.randn((4, 6), seed=3, **options)}
            self.assertEqual({x.spec for x in made.values()}, {"('data', 'model')"})
            self.assertEqual(mesh.stats()["bytes_sent"], 0)
            repeated = dtensor.ones(4, requires_grad=True, device_mesh=mesh)
            self.assertEqual((repeated.spec, repeated.requires_grad), ("(None,)", True))
            return {name: x.gather().tolist() for name, x in made.items()}

        plain = {"zeros": distag.zeros((4, 6)), "ones": distag.ones((4, 6)), "full": distag.full(2.5, (4, 6)),
                 "rand": distag.rand(3, (4, 6), distag.float64), "randn": distag.randn(3, (4, 6), distag.float64)}
        self.assertEqual(on_members(program), [{name: x.tolist() for name, x in plain.items()}] * 4)

    def test_modules_are_distributed_by_styles(self):
        expected = {"0.weight": "('model', None)", "0.bias": "('model',)", "2.weight": "(None, 'model')"}
        for bias in (True, False):
            def program(worker, mesh):
                model = nn.Sequential(nn.Linear(6, 8, bias, seed=1), distag.tanh, nn.Linear(8, 2, bias, seed=2))
                x = numbers(3, 6).cast(distag.float32) * 0.1
                plain = model(x).tolist()
                plan = {"0": dtensor.ColwiseParallel(), "2": dtensor.RowwiseParallel()}
                self.assertIs(dtensor.parallelize_module(model, mesh, plan), model)
                near(model(mesh.shard(x, (None, None))).full_tensor().tolist(), plain, 1e-5)
                return lies(model)

            wanted = {**expected, "2.bias": "(None,)"} if bias else {
                name: spec for name, spec in expected.items() if name.endswith("weight")}
            self.assertEqual(on_members(program), [wanted] * 4)

    def test_a_layer_without_a_bias_behind_one_with_it_hides_no_rule(self):
        def program(worker, mesh):
            model = nn.Sequential(nn.Linear(6, 8), distag.tanh, nn.Linear(8, 2, False))
            plan = {"0": dtensor.ColwiseParallel(), "*": dtensor.RowwiseParallel()}
            return lies(dtensor.parallelize_module(model, mesh, plan))

        wanted = {"0.weight": "('model', None)", "0.bias": "('model',)", "2.weight": "(None, 'model')"}
        self.assertEqual(on_members(program), [wanted] * 4)

    def test_what_has_no_dims_is_repeated(self):
        def program(worker, mesh):
            both, alone = nn.Linear(4, 6), nn.Module()
            for module in (both, alone):
                module.scale = distag.full(2.0, ()).requires_grad_()
                dtensor.fully_shard(module, mesh=mesh)
            return both.scale.spec, alone.scale.spec, both.weight.spec != "(None, None)"

        self.assertEqual(on_members(program), [("()", "()", True)] * 4)

    def test_modules_are_fully_sharded(self):
        def program(worker, mesh):
            model = dtensor.fully_shard(nn.Linear(4, 6), mesh=mesh)
            single = dtensor.parallelize_module(nn.Linear(4, 6, False), mesh, dtensor.RowwiseParallel())
            return lies(model), lies(single)

        expected = {"weight": "('model', None)", "bias": "('model',)"}, {"weight": "(None, 'model')"}
        self.assertEqual(on_members(program), [expected] * 4)

    def test_members_meet_at_a_barrier(self):
        arrived = []

        def program(worker, mesh):
            arrived.append(worker.rank)
            worker.barrier(timeout=120)
            return len(arrived)

        self.assertEqual(on_members(program), [4] * 4)

    def test_a_module_has_buffers(self):
        model = nn.Linear(2, 2)
        model.mean = distag.zeros((2,))
        self.assertEqual([name for name, _ in model.named_buffers()], ["mean"])
        self.assertEqual((model.buffers(), len(model.parameters())), ([model.mean], 2))

    def test_the_table_of_the_guide_names_what_there_is(self):
        with open(os.path.join(TOP, "docs", "python-from-torch.md"), encoding="utf-8") as file:
            table = "\n".join(line.split(" | ")[1] for line in file.read().split("| DTensor, FSDP2 |")[1].splitlines()
                              if " | " in line)
        places = {"dtensor": dtensor, "checkpoint": checkpoint, "mesh": distag.Mesh, "worker": distag.Worker,
                  "distag": distag, "t": distag.Tensor, "module": nn.Module, "optimizer": optim.Optimizer}
        found = re.findall(r"\b(" + "|".join(places) + r")\.([A-Za-z_]+)", table)
        self.assertGreater(len(found), 15)
        for place, name in found:
            self.assertTrue(hasattr(places[place], name), f"{place}.{name}")


class Stumbles(unittest.TestCase):
    def test_a_rule_behind_one_that_fits_as_much_is_told(self):
        mesh = distag.Mesh((2,), ("x",))
        leaves = {"0.weight": distag.ones((4, 4)), "1.weight": distag.ones((4, 4))}
        rules = {"*.weight": ("x", None), "0.weight": (None, "x")}
        with self.assertRaisesRegex(distag.UsageError, "\"0.weight\" is hidden.*to the front"):
            distag.Plan(mesh, leaves, rules)
        plan = distag.Plan(mesh, leaves, dict(reversed(rules.items())))
        self.assertEqual((plan.spec("0.weight"), plan.spec("1.weight")), ("(None, 'x')", "('x', None)"))

    def test_tied_weights_are_one(self):
        def program(worker, mesh):
            model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            model.parts[1].weight = model.parts[0].weight
            return lies(distag.distribute_module(model, mesh, {"*.weight": ("model", None)}))

        expected = {"0.weight": "('model', None)", "0.bias": "(None,)", "1.bias": "(None,)"}
        self.assertEqual(on_members(program), [expected] * 4)

    def test_a_result_that_a_forward_keeps_is_no_parameter(self):
        model = nn.Linear(4, 4)
        model.last = model(distag.ones((2, 4)))
        self.assertEqual(list(model.state_dict()), ["weight", "bias"])
        with distag.no_grad():
            model.last = model(distag.ones((2, 4)))
        self.assertEqual([name for name, _ in model.named_parameters()], ["weight", "bias"])

    def test_a_member_or_a_mesh_that_does_not_fit_is_told_with_the_cure(self):
        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://cures") as worker, \
                worker.mesh((1,), ("x",), name="one") as mesh, worker.mesh((1,), ("x",), name="two") as other:
            x, y = (each.shard(distag.ones((4,)), ("x",)) for each in (mesh, other))
            cures = {
                "gather: the rank is not among the 1 members of mesh \"one\": give one of its ranks, or -1 for all":
                    lambda: x.gather(7),
                "mark_sharding: the source is not among the 1 members of mesh \"one\": give one of its ranks, or -1":
                    lambda: mesh.shard(distag.ones((4,)), ("x",), 7),
                "broadcast: root 7 is not among the 1 members: give a position from 0 on":
                    lambda: mesh.broadcast(distag.ones((4,)), root=7),
                "add: its inputs are sharded over two meshes, \"one\" and \"two\": gather one": lambda: x + y,
            }
            for text, call in cures.items():
                with self.assertRaises(distag.UsageError) as failure:
                    call()
                self.assertEqual(failure.exception.message, text)

    def test_wrong_arguments_are_told_by_the_package(self):
        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://wrong") as worker, \
                worker.mesh((1, 1), ("x", "y")) as mesh:
            def leaf():
                return distag.ones((4, 4))

            x, linear = mesh.shard(leaf(), ("x", None)).requires_grad_(), nn.Linear(2, 2)
            sgd = optim.SGD(worker, [x], lr=0.1)
            wrong = {
                "not a list": [lambda: distag.Plan(mesh, [leaf()]), lambda: distag.Plan(mesh, {"a": leaf()}, ["a"]),
                               lambda: distag.distribute_module([1], mesh, {}), lambda: mesh.shard([1], ("x",))],
                "leaves are a dict": [lambda: distag.Plan(mesh, None)],
                "position of a member": [lambda: distag.distribute_module(linear, mesh, {}, "a"),
                                         lambda: distag.distribute_tensor(leaf(), mesh, ("x", None), "a")],
                "a worker is wanted": [lambda: distag.Mesh((1,), worker=5), lambda: distag.Mesh((1,), worker=leaf())],
                "a mesh is wanted": [lambda: distag.visualize_sharding(("x",), (2,), mesh=3),
                                     lambda: dtensor.fully_shard(linear, mesh=3),
                                     lambda: dtensor.parallelize_module(linear, None, {})],
                "a tensor is wanted": [lambda: distag.visualize_tensor_sharding(3)],
                "two numbers are wanted": [lambda: distag.visualize_sharding(("x",), (2,), mesh=mesh, dims=(1, 2, 3))],
                "a module is wanted": [lambda: dtensor.parallelize_module([1], mesh, {})],
                "is one of": [lambda: mesh.spec(("x",), 1, []), lambda: mesh.all_reduce(leaf(), op=[]),
                              lambda: worker.mesh((1,), hidden_moves=3), lambda: mesh.loader([leaf()], mode=[]),
                              lambda: mesh.context().backward(x.sum(), mode=[]), lambda: distag.deferred((2,), init=3)],
                "name of an axis": [lambda: mesh.all_reduce(leaf(), 3)],
                "a context is wanted": [lambda: sgd.step(None), lambda: sgd.clip(3, 1.0)],
                "two numbers": [lambda: optim.Adam(worker, [x], betas=3)],
                "a number is wanted": [lambda: optim.SGD(worker, [x], lr="a")],
                "a whole number": [lambda: mesh.loader([[1.0]], batch_rows=1, epochs="a"),
                                   lambda: mesh.loader([[1.0]], batch_rows=1, epochs=1.5)],
                "a root is a tensor": [lambda: mesh.context().backward(None), lambda: mesh.context().backward([3])],
                "dim: an integer is wanted": [lambda: Shard("a")],
                "is a sum, not 'avg': .*divide": [lambda: Partial("avg")],
            }
            for text, calls in wrong.items():
                for number, call in enumerate(calls):
                    with self.subTest(text, number=number), self.assertRaisesRegex(distag.UsageError, text):
                        call()


if __name__ == "__main__":
    unittest.main()
