"""Meshes and sharded tensors: four members in one process, a thread each, as in a notebook."""
import gc
import json
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import distag
import time
from distag import nn, optim
from support import group

NAMES = ("a", "b", "c", "d")


def on_members(program, names=NAMES, **options):
    """Runs a program of (worker, mesh) on each member in a thread of its own; what each gives."""
    shape, axes = options.pop("shape", (2, -1)), options.pop("axes", ("data", "model"))
    with group(names=names) as workers, ThreadPoolExecutor(len(names)) as pool:

        def run(worker):
            with worker.mesh(shape, axes, timeout=240, **options) as mesh:
                return program(worker, mesh)

        return [done.result() for done in [pool.submit(run, worker) for worker in workers]]


def numbers(rows, columns):
    return distag.arange(0, rows * columns, dtype=distag.float64).reshape(rows, columns)


class Meshes(unittest.TestCase):
    def test_a_mesh_says_what_it_is(self):
        def program(worker, mesh):
            self.assertEqual(mesh.position, worker.rank)
            return mesh.name, mesh.shape, mesh.axis_names, mesh.size, mesh.ranks, mesh.granules, repr(mesh)

        shape = {"data": 2, "model": 2}
        text = "<distag.Mesh \"grid\" data=2, model=2>"
        expected = ("grid", shape, ("data", "model"), 4, [0, 1, 2, 3], [0] * 4, text)
        self.assertEqual(on_members(program, name="grid"), [expected] * 4)

    def test_a_mesh_without_a_worker_serves_for_specs_and_boxes(self):
        mesh = distag.Mesh((2, 3), ("x", "y"))
        self.assertEqual(mesh.position, None)
        self.assertEqual(mesh.box(("x", ("y",)), (5, 7), 4), ((3, 3), (2, 3), 0))
        self.assertEqual(mesh.box(("x", None), (5, 7), 4).slices, (slice(3, 5), slice(0, 7)))
        self.assertEqual(mesh.spec("S(0), R", 2), "('x', None)")
        self.assertEqual(mesh.spec(("x", None), 2, "shardy"), "sharding<@mesh, [{\"x\"}, {}]>")
        with self.assertRaisesRegex(distag.UsageError, "without a worker"):
            mesh.all_reduce(distag.tensor([1.0]))

    def test_a_hybrid_mesh_has_inner_times_outer_positions(self):
        mesh = distag.HybridMesh(None, (1, 2), (2, 1), ("data", "model"), ranks=[0, 1, 2, 3], granules=[1, 0, 1, 0])
        self.assertEqual((mesh.shape, mesh.ranks), ({"data": 2, "model": 2}, [1, 3, 0, 2]))
        with self.assertRaisesRegex(distag.UsageError, "granules makes several"):
            distag.HybridMesh(None, (1, 2), (2, 1), ("data", "model"))

    def test_granules_are_as_many_as_members(self):
        def program(worker, mesh):
            for granules in ([0], [0, 0, 1], [0, 0, 1, 1, 1]):
                words = f"granules: as many numbers as ranks has are wanted, 4, not {len(granules)}"
                with self.assertRaisesRegex(distag.UsageError, words):
                    worker.mesh((1, 2), ("data", "model"), outer_shape=(2, 1), granules=granules)
            with worker.mesh((1, 2), ("data", "model"), outer_shape=(2, 1), granules=[1, 0, 1, 0]) as hybrid:
                return hybrid.ranks

        self.assertEqual(on_members(program), [[1, 3, 0, 2]] * 4)

    def test_specs_are_texts_tuples_and_placements(self):
        mesh = distag.Mesh((2, 3), ("x", "y"))
        for spec in ("('x', None)", ("x", None), ["x", None], (0, None), [distag.Shard(0), distag.Replicate()],
                     (distag.Shard(-2), distag.Replicate()), str([distag.Shard(0), distag.Replicate()]),
                     "P('x', None)", "(Shard(dim=0), Replicate())"):
            self.assertEqual(mesh.spec(spec, 2), "('x', None)", spec)
        self.assertEqual(mesh.spec([distag.Partial(), distag.Shard(0)], 1), "('y',) sum('x')")
        self.assertEqual(mesh.spec((), 0), "()")
        self.assertEqual(mesh.spec((("y", "x"),), 1), "(('y', 'x'),)")
        for wrong in (("x' sum('y", None), (1.5, None), 3, None, (("x", None), None), ("x",), (True, None)):
            with self.assertRaises(distag.UsageError, msg=repr(wrong)):
                mesh.spec(wrong, 2)

    def test_options_that_do_not_fit_are_refused(self):
        for options in ({"axes": ("x",)}, {"axes": "xy"}, {"hidden_moves": "never"}, {"granules": [0]},
                        {"outer_shape": (2,)}, {"ranks": [0, 0, 1, 2, 3, 4]}):
            with self.assertRaises(distag.UsageError, msg=repr(options)):
                distag.Mesh((2, 3), **options)

    def test_a_closed_mesh_says_so(self):
        mesh = distag.Mesh((2,), ("x",))
        mesh.close()
        self.assertEqual(repr(mesh), "<closed distag.Mesh>")
        with self.assertRaisesRegex(distag.ClosedError, "this Mesh is closed"):
            mesh.shape

    def test_members_that_differ_learn_it(self):
        def program(worker, mesh):
            with self.assertRaises(distag.DistagError) as caught:
                mesh.all_reduce(distag.tensor([1.0] * (2 if worker.rank == 3 else 1)))
            return caught.exception.name

        self.assertEqual(set(on_members(program)), {"DIVERGED"})

    def test_pictures_show_parts_and_members(self):
        picture = distag.visualize_sharding("{devices=[2,2]0,1,2,3}", label="CPU")
        self.assertIn("│ CPU 2 │ CPU 3 │", picture)
        mesh = distag.Mesh((2, 2), ("x", "y"))
        self.assertIn("2:4, 0:6", mesh.visualize(("x", None), (4, 6)))
        self.assertIn("\"extent\"", mesh.visualize(("x", None), (4, 6), format="json"))
        with self.assertRaisesRegex(distag.UsageError, "not sharded"):
            distag.visualize_tensor_sharding(distag.tensor([1.0]))


class Collectives(unittest.TestCase):
    def test_each_one_once(self):
        def program(worker, mesh):
            x = distag.tensor([float(worker.rank), 10.0 + worker.rank])
            results = [mesh.all_reduce(x), mesh.all_reduce(x, "model", "max"), mesh.all_gather(x, ("data",)),
                       mesh.reduce_scatter(x, "data"), mesh.all_to_all(x, "model"), mesh.broadcast(x, root=2),
                       mesh.reduce(x, root=1), mesh.permute(x, shift=1)]
            return [None if result is None else result.tolist() for result in results]

        first, second, _, last = on_members(program)
        self.assertEqual(first, [[6, 46], [1, 11], [0, 10, 2, 12], [2], [0, 1], [2, 12], None, [3, 13]])
        self.assertEqual(second[6], [6, 46])
        self.assertEqual(last, [[6, 46], [3, 13], [1, 11, 3, 13], [24], [12, 13], [2, 12], None, [2, 12]])

    def test_several_are_under_way_at_once(self):
        def program(worker, mesh):
            futures = [mesh.all_reduce_async(distag.tensor([1.0 * step])) for step in range(50)]
            return [each.item() for each in distag.wait_all(futures, 30)]

        self.assertEqual(on_members(program), [[4.0 * step for step in range(50)]] * 4)

    def test_a_call_that_waits_has_room_beside_256_futures(self):
        ahead = threading.Event()

        def program(worker, mesh):
            x = mesh.shard(numbers(4, 2), ("data", None))
            if worker.rank != 0:
                self.assertTrue(ahead.wait(240))
            given, rounds = distag.tensor([1.0]), []
            for call in (lambda: mesh.all_reduce(given).item(), lambda: x.gather().sum().item()):
                futures = [mesh.all_reduce_async(given) for _ in range(256)]
                ahead.set()
                rounds.append(call())
                distag.wait_all(futures, 240)
            return rounds

        self.assertEqual(on_members(program), [[4.0, 28.0]] * 4)

    def test_lines_are_meshes_with_an_order_of_their_own(self):
        def program(worker, mesh):
            line = mesh.line("side")
            self.assertEqual((line == mesh, line.ranks), (True, mesh.ranks))
            results = [None, None]

            def use(index, which):
                results[index] = [which.all_reduce(distag.tensor([float(index)])).item() for _ in range(20)]

            other = threading.Thread(target=use, args=(1, line))
            other.start()
            use(0, mesh)
            other.join()
            line.close()
            return results

        self.assertEqual(on_members(program), [[[0.0] * 20, [4.0] * 20]] * 4)


class Sharded(unittest.TestCase):
    def test_a_tensor_is_cut_and_gathered(self):
        def program(worker, mesh):
            x = mesh.shard(numbers(4, 4), ("data", "model"))
            self.assertEqual((x.spec, x.shape, x.mesh == mesh), ("('data', 'model')", (4, 4), True))
            row, column = divmod(worker.rank, 2)
            corner = 8.0 * row + 2 * column
            self.assertEqual(x.local().tolist(), [[corner, corner + 1], [corner + 4, corner + 5]])
            self.assertEqual(x.gather().tolist(), numbers(4, 4).tolist())
            at_two = x.gather(2)
            self.assertEqual(None if at_two is None else at_two.tolist(),
                             numbers(4, 4).tolist() if worker.rank == 2 else None)
            self.assertEqual(x.redistribute((None, None)).tolist(), numbers(4, 4).tolist())
            return True

        self.assertEqual(on_members(program), [True] * 4)

    def test_the_stats_of_a_mesh_tell_what_was_sent_from_what_was_received(self):
        def program(worker, mesh):
            x, before = mesh.shard(numbers(8, 1), ("data", None)), mesh.stats()
            x.redistribute(("model", None))  # the first half goes from position 0 to 2, the second from 3 to 1
            after = mesh.stats()
            return {name: after[name] - before[name] for name in ("moves", "all_gathers", "bytes_sent", "bytes_received")}

        sends, receives = ({"moves": 1, "all_gathers": 0, "bytes_sent": sent, "bytes_received": received}
                           for sent, received in ((32, 0), (0, 32)))
        self.assertEqual(on_members(program), [sends, receives, receives, sends])

    def test_repr_never_fails_and_never_communicates(self):
        def program(worker, mesh):
            x = mesh.shard(numbers(5, 4), ("data", None)).requires_grad_()
            partial = (x * 2).sum(dims=0)
            mesh.all_reduce(distag.tensor([0.0]))  # behind it all calls are counted
            before = mesh.stats()
            texts = [repr(x), repr(partial)] if worker.rank == 3 else []  # one member alone
            self.assertEqual(mesh.stats(), before)
            gone = mesh.shard(numbers(2, 2), ("data", None))
            mesh.all_reduce(distag.tensor([0.0]))
            return texts, gone

        results = on_members(program)
        self.assertEqual(results[3][0], [
            f"distag.Tensor({text}, requires_grad=True)" for text in
            ("shape [5, 4], float64, spec ('data', None), mesh \"mesh\", here [3:5, 0:4]",
             "shape [4], float64, spec (None,) sum('data'), mesh \"mesh\", here [0:4]")])
        for _, gone in results:  # the mesh has ended, and the workers too
            self.assertIn("spec ('data', None)", repr(gone))

    def test_reading_a_part_says_to_gather(self):
        def program(worker, mesh):
            x = mesh.shard(numbers(4, 4), ("data", None))
            for read in (x.tolist, x.numpy, x.tobytes, x.sum().item):
                with self.assertRaisesRegex(distag.UsageError, "gather"):
                    read()
            self.assertEqual(x.sum().gather().item(), 120.0)
            whole = mesh.shard(numbers(2, 2), (None, None))  # all of it is here
            self.assertEqual(whole.tolist(), [[0.0, 1.0], [2.0, 3.0]])
            return True

        self.assertEqual(on_members(program), [True] * 4)

    def test_values_come_from_the_member_at_the_source(self):
        def program(worker, mesh):
            x = distag.distribute_tensor(distag.full(worker.rank, (2, 2)), mesh, ("data", None), src_data_rank=3)
            y = distag.mark_sharding(distag.full(worker.rank, (2, 2)), mesh, ("data", None))
            with self.assertRaisesRegex(distag.UsageError, "src_data_rank 4"):
                distag.distribute_tensor(distag.full(0, (2, 2)), mesh, ("data", None), src_data_rank=4)
            return x.gather().tolist(), y.local().tolist()

        for rank, (x, y) in enumerate(on_members(program)):
            self.assertEqual((x, y), ([[3.0, 3.0]] * 2, [[float(rank)] * 2]))

    def test_parts_make_up_a_whole(self):
        def program(worker, mesh):
            own = distag.full(worker.rank, (1, 2), distag.float64).requires_grad_()
            x = distag.from_local(own, mesh, (("data", "model"), None))
            self.assertEqual((x.shape, x.spec), ((4, 2), "(('data', 'model'), None)"))
            with mesh.context() as context:
                context.backward((x * x).sum())
                return x.gather().tolist(), context.gradient(own).tolist()

        for rank, (whole, gradient) in enumerate(on_members(program)):
            self.assertEqual(whole, [[float(i)] * 2 for i in range(4)])
            self.assertEqual(gradient, [[2.0 * rank] * 2])

    def test_a_deferred_tensor_makes_its_own_part_only(self):
        asked = [[] for _ in NAMES]

        def program(worker, mesh):
            def source(offset, extent):
                asked[worker.rank].append((offset, extent))
                return [[100.0 * (offset[0] + i) + offset[1] + j for j in range(extent[1])] for i in range(extent[0])]

            made = distag.deferred((4, 2), distag.float64, source=source)
            self.assertTrue(made.is_deferred)
            self.assertEqual(repr(made), "distag.Tensor(shape [4, 2], float64, deferred)")
            mesh.shard(made, (("data", "model"), None))
            self.assertFalse(made.is_deferred)
            random = mesh.shard(distag.deferred((8, 8), distag.float64, init="randn", seed=5), ("data", "model"))
            return made.gather().tolist(), random.gather().tolist()

        whole = [[0.0, 1.0], [100.0, 101.0], [200.0, 201.0], [300.0, 301.0]]
        self.assertEqual(on_members(program), [(whole, distag.randn(5, (8, 8), distag.float64).tolist())] * 4)
        self.assertEqual(asked, [[((rank, 0), (1, 2))] for rank in range(4)])

    def test_a_source_that_fails_or_gives_another_shape_says_so(self):
        short = distag.deferred((4, 2), source=lambda offset, extent: [[1.0, 2.0]])
        with self.assertRaisesRegex(distag.UsageError, r"the source gives the shape \[1, 2\], and \[4, 2\] is wanted"):
            short.tolist()

        def fail(offset, extent):
            raise KeyError("no such file")

        with self.assertRaisesRegex(distag.UserError, "KeyError: 'no such file'"):
            distag.deferred((4, 2), source=fail).tolist()
        for arguments in ({"init": "ones"}, {"init": "source"}, {"init": "randn", "source": fail},
                          {"scale": 0, "init": "rand"}, {"seed": -1, "init": "rand"}):
            with self.assertRaises(distag.UsageError, msg=repr(arguments)):
                distag.deferred((4, 2), **arguments)
        with self.assertRaisesRegex(distag.UsageError, "a shape of several sizes is one list"):
            distag.deferred(2, 3)

    def test_the_op_gather_keeps_its_name(self):
        x, index = distag.tensor([[1.0, 2.0], [3.0, 4.0]]), distag.tensor([[1], [0]])
        self.assertEqual(x.gather(index, 1).tolist(), [[2.0], [3.0]])
        self.assertEqual(x.gather(index=index, dim=1).tolist(), [[2.0], [3.0]])


class Training(unittest.TestCase):
    SPECS = {"data": (("data", None), (None, None), (None,), (None, None), (None,)),
             "model": ((None, None), ("model", None), ("model",), (None, "model"), (None,)),
             "fully": (("data", None), ("data", None), ("data",), ("data", None), ("data",))}

    def train(self, worker, mesh, specs):
        model = nn.Sequential(nn.Linear(6, 8, dtype=distag.float64, seed=1), distag.tanh,
                              nn.Linear(8, 3, dtype=distag.float64, seed=2))
        x, target = distag.randn(3, (10, 6), distag.float64), distag.randn(4, (10, 3), distag.float64)
        if mesh is not None:
            mesh.shard(x, specs[0])
            mesh.shard(target, specs[0])
            for parameter, spec in zip(model.parameters(), specs[1:]):
                mesh.shard(parameter, spec)
        adam = optim.Adam(worker, [model], lr=0.05)
        losses = []
        for _ in range(5):
            with distag.Context() if mesh is None else mesh.context() as context:
                loss = distag.mse_loss(model(x), target)
                context.backward(loss)
                adam.step(context)
                losses.append((loss if mesh is None else loss.gather()).item())
        return losses

    def test_all_forms_have_the_losses_of_one_process(self):
        alone = self.train(None, None, None)
        for name, specs in self.SPECS.items():
            for losses in on_members(lambda worker, mesh: self.train(worker, mesh, specs)):
                for one, other in zip(losses, alone):
                    self.assertAlmostEqual(one, other, delta=1e-12 * abs(other), msg=name)

    def test_parameters_have_names_and_are_set_by_them(self):
        class Net(nn.Module):
            def __init__(self, seed):
                self.first = nn.Linear(2, 3, seed=seed)
                self.rest = [nn.Sequential(nn.Linear(3, 3, seed=seed), distag.relu,
                                           nn.Linear(3, 1, bias=False, seed=seed))]

        one, other = Net(1), Net(5)
        names = ["first.weight", "first.bias", "rest.0.0.weight", "rest.0.0.bias", "rest.0.2.weight"]
        self.assertEqual(list(one.state_dict()), names)
        self.assertEqual([parameter.id for parameter in one.parameters()], [t.id for t in one.state_dict().values()])
        other.load_state_dict(one.state_dict())
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            self.assertEqual(a.tolist(), b.tolist())
        state = other.state_dict()
        before = other.first.weight.tolist()
        for wrong in ({**state, "more": state["first.bias"]}, {name: state[name] for name in names[1:]},
                      {**state, "rest.0.2.weight": distag.zeros((3, 1)), "first.weight": distag.zeros((3, 2))}):
            with self.assertRaisesRegex(distag.UsageError, "load_state_dict"):
                other.load_state_dict(wrong)
        self.assertEqual(other.first.weight.tolist(), before)

        def program(worker, mesh):
            model = nn.Linear(2, 3, seed=7)
            for parameter in model.parameters():
                mesh.shard(parameter, ("data",) + (None,) * (parameter.ndim - 1))
            twin = nn.Linear(2, 3, seed=8)
            for parameter in twin.parameters():
                mesh.shard(parameter, ("data",) + (None,) * (parameter.ndim - 1))
            twin.load_state_dict(model.state_dict())
            return twin.weight.gather().tolist()

        self.assertEqual(on_members(program), [nn.Linear(2, 3, seed=7).weight.tolist()] * 4)

    def test_a_state_that_fails_half_way_sets_nothing(self):
        def source(offset, extent):
            raise ValueError("no source")

        def program(worker, mesh):
            elsewhere = worker.mesh((4,), ("x",), name="elsewhere", timeout=240)
            model = nn.Linear(2, 4, seed=1)
            mesh.shard(model.weight, ("data", None))
            mesh.shard(model.bias, (None,))
            weight = mesh.shard(distag.full(7.0, (4, 2)), ("data", None))
            before = [parameter.gather().tolist() for parameter in model.parameters()]
            closed = distag.zeros((4,))
            closed.close()
            for bias, text in ((elsewhere.shard(distag.zeros((4,)), ("x",)), 'of mesh "elsewhere"'),
                               (distag.deferred((4,), init="shape"), "a shape without elements"),
                               (distag.deferred((4,), source=source), "no source"), (closed, "closed")):
                with self.assertRaisesRegex(distag.DistagError, text):
                    model.load_state_dict({"weight": weight, "bias": bias})
                self.assertEqual([parameter.gather().tolist() for parameter in model.parameters()], before)
            self.assertTrue(all(parameter.requires_grad for parameter in model.parameters()))
            elsewhere.close()

        on_members(program)

    def test_modules_are_distributed_by_rules(self):
        def model(seed):
            return nn.Sequential(nn.Linear(4, 6, seed=seed), distag.relu, nn.Linear(6, 2, seed=seed))

        def program(worker, mesh):
            made = distag.distribute_module(model(worker.rank), mesh, {
                "0.weight": ("model", None), "0.*": "('model',)", "?.weight": [distag.Replicate(), distag.Shard(1)]})
            self.assertEqual([parameter.spec for parameter in made.parameters()],
                             ["('model', None)", "('model',)", "(None, 'model')", "(None,)"])
            own = distag.distribute_module(model(worker.rank), mesh, {}, src_data_rank=None)
            self.assertEqual(own.parts[0].bias.local().tolist(), model(worker.rank).parts[0].bias.tolist())
            return [parameter.gather().tolist() for parameter in made.parameters()]

        self.assertEqual(on_members(program), [[parameter.tolist() for parameter in model(0).parameters()]] * 4)

    def test_a_rule_that_fits_nothing_or_does_not_suit_is_refused_before_anything_is_sharded(self):
        mesh, made = distag.Mesh((2, 2), ("data", "model")), nn.Sequential(nn.Linear(4, 6, seed=1))
        for rules, text in (({"0.weigth": ("model", None)}, '"0.weigth" fits no leaf; the nearest are "0.weight"'),
                            ({"*": ("model", None)}, "fits no leaf"),
                            ({"0.*": ("model", None)}, 'does not suit leaf "0.bias"'),
                            ({"**": "('modle',)"}, "no axis modle")):
            with self.assertRaisesRegex(distag.UsageError, text):
                distag.distribute_module(made, mesh, rules)
        self.assertEqual([parameter.spec for parameter in made.parameters()], [None, None])

    def test_a_model_is_all_of_it(self):
        """Frozen tensors and those in dicts are distributed too, tied ones once, results not."""
        def make(seed):
            net = nn.Module()
            net.layers = {"in": nn.Linear(4, 4, seed=seed), 7: [nn.Linear(4, 2, seed=seed)]}
            net.frozen, net.steps = distag.randn(seed, (4, 4)), distag.tensor([seed, seed])
            net.tied = [net.layers["in"].weight, net.frozen]
            net.last = net.layers["in"](distag.ones((1, 4)))
            net.out = {"out": nn.Sequential(nn.Linear(2, 2, seed=seed)), "not": "a tensor", "none": None,
                       "up": net}
            return net

        names = ["layers.in.weight", "layers.in.bias", "layers.7.0.weight", "layers.7.0.bias", "frozen", "steps",
                 "out.out.0.weight", "out.out.0.bias"]
        one = make(0)
        self.assertEqual([name for name, _ in one.named_tensors()], names)
        self.assertEqual(list(one.state_dict()), names)
        self.assertEqual([name for name, _ in one.named_parameters()], names[:4] + names[6:])
        expected = {name: tensor.tolist() for name, tensor in one.state_dict().items()}

        def program(worker, mesh):
            made = distag.distribute_module(make(worker.rank), mesh, {"*.in.weight": ("model", None),
                                                                      "frozen": (None, "data")})
            self.assertIs(made.tied[0].mesh == mesh, True)
            self.assertEqual((made.tied[0].spec, made.frozen.spec, made.steps.spec),
                             ("('model', None)", "(None, 'data')", "(None,)"))
            self.assertIsNone(made.last.spec)
            return {name: tensor.gather().tolist() for name, tensor in made.state_dict().items()}

        self.assertEqual(on_members(program), [expected] * 4)

    def test_one_tensor_or_name_twice_and_no_tensors_are_refused(self):
        mesh, module = distag.Mesh((2, 2), ("data", "model")), nn.Module()
        weight = distag.ones((4, 4))
        with self.assertRaisesRegex(distag.UsageError, 'the leaves "a" and "b" are one tensor'):
            distag.Plan(mesh, {"a": weight, "c": distag.ones((2,)), "b": weight})
        module.parts = {1: weight, "1": distag.ones((2,))}
        for use in (module.state_dict, lambda: distag.distribute_module(module, mesh, {})):
            with self.assertRaisesRegex(distag.UsageError, 'have the name "parts.1"'):
                use()
        for wrong in (lambda: distag.distribute_module(weight, mesh, {}),
                      lambda: distag.distribute_module(nn.Linear(2, 2), "mesh", {}),
                      lambda: distag.Plan(mesh, {"a": 1.0}), lambda: distag.Plan(None, {"a": weight}),
                      lambda: distag.mark_sharding(weight, None, (None, None)),
                      lambda: distag.distribute_tensor([1.0], mesh, (None,)),
                      lambda: distag.distribute_tensor(weight, 3, (None, None)),
                      lambda: distag.from_local(weight, "mesh", (None, None)),
                      lambda: nn.Linear(1, 1, bias=False).load_state_dict({"weight": [[1.0]]}),
                      lambda: nn.Linear(1, 1).load_state_dict([weight])):
            with self.assertRaisesRegex(distag.UsageError, "is wanted, not (an? |None)"):
                wrong()
        self.assertIsNone(weight.spec)

    def test_a_plan_completes_rules_for_a_program_on_shapes(self):
        model = nn.Sequential(nn.Linear(4, 8, seed=1), distag.relu, nn.Linear(8, 2, seed=2))
        mesh, batch = distag.Mesh((2, 2), ("data", "model")), distag.deferred((16, 4), init="shape")
        loss = model(batch).mean()
        self.assertTrue(loss.is_shape_only and loss.requires_grad and not loss.is_deferred)
        self.assertEqual((loss.shape, loss.dtype, model(batch).shape), ((), distag.float32, (16, 2)))
        self.assertIn("without elements", repr(batch))
        leaves = {"batch": batch, **dict(model.named_parameters())}
        rules = {"batch": ("data", None), "0.weight": ("model", None)}
        with distag.Plan(mesh, leaves, rules, roots=[loss]) as plan:
            self.assertEqual([plan.spec(name) for name in leaves],
                             ["('data', None)", "('model', None)", "('model',)", "(None, 'model')", "(None,)"])
            again = distag.Plan(mesh, leaves, roots=(each for each in (loss,)), saved=plan.report)
            self.assertEqual(again.report, plan.report)
        for wrong in (batch.tolist, batch.item, lambda: distag.Plan(mesh, leaves, rules, roots=[leaves["0.weight"]])):
            with self.assertRaisesRegex(distag.DistagError, "elements"):
                wrong()

    def test_a_plan_chooses_the_specs_of_the_fastest_step(self):
        mesh, batch = distag.Mesh((2,), ("data",)), distag.deferred((8192, 32), init="shape")
        model = nn.Sequential(nn.Linear(32, 32, seed=1), distag.relu, nn.Linear(32, 2, seed=2))
        leaves, roots = {"batch": batch, **dict(model.named_parameters())}, [model(batch).square().mean()]
        with distag.Plan(mesh, leaves, roots=roots, mode="auto", costs={"rate": 1e9}, timeout=60) as plan:
            self.assertEqual([plan.spec(name) for name in leaves],
                             ["('data', None)", "(None, None)", "(None,)", "(None, None)", "(None,)"])
            report = json.loads(plan.report)
            self.assertEqual((report["mode"], report["step"]["all_reduces"], report["costs"]["rate"]), ("auto", 1, 1e9))
            self.assertEqual(report["seconds"], report["bound"])
        for wrong in ({"mode": "fast"}, {"mode": "auto", "costs": {"alpha": -1}}, {"mode": "complete", "costs": "{}"}):
            with self.assertRaises(distag.UsageError):
                distag.Plan(mesh, leaves, roots=roots, **wrong)

    def test_a_plan_marks_named_tensors_and_is_used_again(self):
        def leaves(seed):
            made = nn.Sequential(nn.Linear(4, 6, seed=seed))
            return {**dict(made.named_parameters()), "mask": distag.full(1.0, (6,))}

        def program(worker, mesh):
            first, second = leaves(worker.rank), leaves(7)
            plan = distag.Plan(mesh, first, {"*.weight": ("model", None)}, source=2, memory_bytes=1 << 20)
            plan.apply(mesh)
            self.assertEqual([tensor.spec for tensor in first.values()], ["('model', None)", "(None,)", "(None,)"])
            self.assertEqual((plan.spec("0.weight"), plan.spec("1.weight")), ("('model', None)", None))
            again = distag.Plan(mesh, second, saved=plan.report, source=None)
            again.apply(mesh)
            self.assertEqual(again.report, plan.report)
            self.assertIn("of 3 tensors", repr(again))
            with self.assertRaisesRegex(distag.UsageError, "both saved and rules"):
                distag.Plan(mesh, second, {"mask": (None,)}, saved=plan.report)
            with self.assertRaisesRegex(distag.DistagError, "needs .* bytes"):
                distag.Plan(mesh, leaves(1), memory_bytes=1)
            return first["0.weight"].gather().tolist(), second["0.weight"].gather().tolist()

        self.assertEqual(on_members(program), [(leaves(2)["0.weight"].tolist(), leaves(7)["0.weight"].tolist())] * 4)

    def test_clip_gives_the_norm_of_the_whole(self):
        def program(worker, mesh):
            weight = mesh.shard(distag.full(3.0, (4, 4), distag.float64), ("data", "model")).requires_grad_()
            sgd = optim.SGD(worker, [weight], lr=1.0)
            with mesh.context() as context:
                context.backward((weight * weight).sum())
                return sgd.clip(context, 1.0)

        self.assertEqual(on_members(program), [24.0] * 4)

    def test_nothing_stays_behind(self):
        gc.collect()
        before = distag.handle_count()
        on_members(lambda worker, mesh: self.train(worker, mesh, self.SPECS["fully"]))
        gc.collect()
        # The last release of a worker ends it on a thread of the library.
        end, pause = time.monotonic() + 120, threading.Event()
        while distag.handle_count() > before and time.monotonic() < end:
            pause.wait(0.01)
        self.assertLessEqual(distag.handle_count(), before, distag.handle_report())


if __name__ == "__main__":
    unittest.main()
