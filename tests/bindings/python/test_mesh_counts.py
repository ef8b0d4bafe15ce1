"""What a mesh of two sends, call by call: the tables of docs/spmd.md, and that nothing is left of it."""
import gc
import os
import re
import tempfile
import unittest

import distag
from distag import checkpoint, nn, ops, optim
from test_meshes import on_members

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
COUNTS = ("all_reduces", "all_gathers", "reduce_scatters", "all_to_alls", "broadcasts", "moves", "hidden_moves")
NOTHING = {}
REDUCE, TWICE, EXCHANGE = {"all_reduces": 1}, {"all_reduces": 2}, {"all_gathers": 1}
HIDDEN = {"all_gathers": 1, "hidden_moves": 1}
CUT, REPEATED, SUM = (None, "x"), (None,), "() sum('x')"


def x(mesh, spec=("x", None), shape=(8, 8), seed=1):
    return mesh.shard(distag.rand(seed, shape, distag.float64), spec).requires_grad_()


def columns(mesh):
    return x(mesh, CUT)


def large(mesh):
    return columns(mesh).detach().gt(mesh.shard(distag.full(0.5, (8, 8), distag.float64), CUT))


def indices(mesh, *numbers, spec=(None,)):
    return mesh.shard(distag.tensor(list(numbers)), spec)


def targets(mesh, spec=(None,)):
    return indices(mesh, 0, 1, 2, 3, 4, 5, 6, 7, spec=spec)


def weights(mesh):
    return mesh.shard(distag.rand(4, (8,), distag.float64), (None,))


# A row of "Ops along a cut dim": programs, what they send forward and backward, and how the result lies.
ROWS = {
    "softmax along it": [(lambda m: columns(m).softmax(1), TWICE, REDUCE, CUT)],
    "log_softmax along it": [(lambda m: columns(m).log_softmax(1), TWICE, REDUCE, CUT)],
    "logsumexp over it": [(lambda m: columns(m).logsumexp(1), TWICE, NOTHING, REPEATED)],
    "max, amin over it": [(lambda m: columns(m).max(1), REDUCE, REDUCE, REPEATED),
                          (lambda m: columns(m).amin(1), REDUCE, REDUCE, REPEATED)],
    "any, all over it": [(lambda m: large(m).any(1), REDUCE, None, REPEATED),
                         (lambda m: large(m).all(1), REDUCE, None, REPEATED)],
    "argmax along it": [(lambda m: columns(m).argmax(1), EXCHANGE, None, REPEATED)],
    "var over it": [(lambda m: columns(m).var(1), EXCHANGE, NOTHING, REPEATED)],
    "layer_norm of it; weight and bias are cut alike": [
        (lambda m: columns(m).layer_norm(x(m, ("x",), (8,)), x(m, ("x",), (8,))), EXCHANGE, REDUCE, CUT)],
    "mean of cross_entropy or nll_loss over rows (the batch)": [
        (lambda m: x(m).cross_entropy(targets(m, ("x",))), NOTHING, NOTHING, SUM),
        (lambda m: x(m).cross_entropy(targets(m, ("x",)), ignore_index=-100), REDUCE, NOTHING, SUM),
        (lambda m: x(m).cross_entropy(targets(m, ("x",)), weights(m)), REDUCE, NOTHING, SUM),
        (lambda m: x(m).nll_loss(targets(m, ("x",))), NOTHING, NOTHING, SUM),
        (lambda m: x(m).nll_loss(targets(m, ("x",)), ignore_index=-100), REDUCE, NOTHING, SUM)],
    "cross_entropy over it, as classes": [(lambda m: columns(m).cross_entropy(targets(m)), TWICE, NOTHING, ())],
    "nll_loss over it, as classes": [(lambda m: columns(m).nll_loss(targets(m)), REDUCE, NOTHING, ())],
    "embedding, index_select, gather, the rows that are chosen": [
        (lambda m: ops.embedding(indices(m, 0, 5, 2), x(m)), NOTHING, NOTHING, "(None, None) sum('x')"),
        (lambda m: x(m).index_select(indices(m, 0, 5, 2), 0), NOTHING, NOTHING, "(None, None) sum('x')"),
        (lambda m: x(m).gather(m.shard(distag.tensor([[7, 1]]), (None, None)), 0), NOTHING, NOTHING,
         "(None, None) sum('x')")],
    "dropout, any dim": [(lambda m: columns(m).dropout(0.5, seed=3), NOTHING, NOTHING, CUT)],
}

# Other calls, and what they send.
CALLS = {
    "mark_sharding": (lambda m, folder: m.shard(distag.ones((8,)), ("x",)), NOTHING),
    "mark_sharding from a source": (lambda m, folder: m.shard(distag.ones((8,)), ("x",), 0), {"broadcasts": 1}),
    "from_local": (lambda m, folder: distag.from_local(distag.ones((2,)), m, ("x",)), EXCHANGE),
    "from_local of a shape": (lambda m, folder: distag.from_local(distag.ones((2,)), m, ("x",), shape=(4,)),
                              NOTHING),
    "to_local": (lambda m, folder: x(m).local(), NOTHING),
    "gather": (lambda m, folder: x(m).gather(), EXCHANGE),
    "gather of what is repeated": (lambda m, folder: x(m, (None, None)).gather(), NOTHING),
    "a joint context": (lambda m, folder: m.context(), NOTHING),
    "a line": (lambda m, folder: m.line("other"), NOTHING),
    "redistribute to all": (lambda m, folder: x(m).redistribute((None, None)), EXCHANGE),
    "redistribute to parts": (lambda m, folder: x(m, (None, None)).redistribute(("x", None)), NOTHING),
    "redistribute to another dim": (lambda m, folder: x(m).redistribute((None, "x")), {"all_to_alls": 1}),
    "redistribute a sum": (lambda m, folder: x(m).sum().redistribute(()), REDUCE),
    "redistribute a sum to parts": (lambda m, folder: x(m).sum(0).redistribute(("x",)), {"reduce_scatters": 1}),
    "inputs that are cut differently": (lambda m, folder: x(m).detach() + columns(m).detach(), {"all_to_alls": 1, "hidden_moves": 1}),
    "a parameter is gathered": (lambda m, folder: ops.linear(x(m), x(m)), EXCHANGE),
    "a slice along a cut dim": (lambda m, folder: x(m).detach()[1:3], HIDDEN),
    "a slice along another dim": (lambda m, folder: x(m)[:, 1:3], NOTHING),
    "all of it": (lambda m, folder: x(m)[:, :], NOTHING),
    "an index beside a cut dim": (lambda m, folder: x(m)[:, 1], NOTHING),
    "an assignment": (lambda m, folder: x(m).detach().__setitem__(slice(0, 2), 1.0), NOTHING),
    "one exchange for a module": (lambda m, folder: distag.distribute_module(
        nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), m, {"*.weight": ("x", None)}), {"broadcasts": 1}),
    "save": (lambda m, folder: checkpoint.save(m, folder, {"x": x(m)}), NOTHING),
    "loader of rows": (lambda m, folder: list(m.loader([[1.0]] * 8, batch_rows=4)), NOTHING),
    "loader of wholes": (lambda m, folder: list(m.loader([distag.ones((4,))] * 2)), NOTHING),
    "loader of parts": (lambda m, folder: list(m.loader([distag.ones((4,))] * 2, mode="local")), NOTHING),
    "loader of one member": (lambda m, folder: list(m.loader([distag.ones((4,))] * 2, mode="root")), {"moves": 2}),
}

# A step of "Training": batch and weights, what forward, backward, a step and clip send.
STEPS = {
    "data parallel": ((("x", None), (None, None), (None, None)), NOTHING, REDUCE),
    "tensor parallel": (((None, None), ("x", None), (None, "x")), REDUCE, NOTHING),
    "fully sharded": ((("x", None), ("x", None), ("x", None)), {"all_gathers": 2},
                      {"all_gathers": 1, "reduce_scatters": 2}),
}


def sent(mesh, call):
    """What a call gives, and what was counted and noted of it."""
    before, noted = mesh.stats(), len(mesh.report()["moves"])
    result = call()
    after = mesh.stats()
    return result, {name: after[name] - before[name] for name in COUNTS if after[name] != before[name]}, \
        mesh.report()["moves"][noted:]


class Counts(unittest.TestCase):
    def on_two(self, program):
        gc.collect()
        before = distag.handle_count()
        results = on_members(program, ("a", "b"), shape=(2,), axes=("x",))
        gc.collect()
        self.assertEqual(distag.handle_count(), before)
        self.assertEqual(results[0], results[1])
        return results

    def test_the_rows_are_those_of_the_document(self):
        with open(os.path.join(TOP, "docs", "spmd.md"), encoding="utf-8") as file:
            table = file.read().split("### Ops along a cut dim")[1].split("\n\n")[2]
        self.assertEqual([re.match(r"\| (.*?) \|", line).group(1) for line in table.splitlines()[2:]], list(ROWS))

    def test_ops_along_a_cut_dim_send_what_the_document_says(self):
        def program(worker, mesh):
            for row, programs in ROWS.items():
                for number, (op, forward, backward, lies) in enumerate(programs):
                    with mesh.context() as context:
                        y, counts, moves = sent(mesh, lambda: op(mesh))
                        self.assertEqual((counts, y.spec), (forward, mesh.spec(lies, y.ndim)), (row, number))
                        self.assertEqual(len(moves), sum(forward.values()), (row, number))
                        for move in moves:  # what the program called, then the step of it
                            self.assertRegex(move["op"], "^(" + "|".join(distag.ops.__all__) + "): ", (row, number))
                        if backward is not None:
                            root = y.sum()
                            _, counts, moves = sent(mesh, lambda: context.backward(root))
                            self.assertEqual(counts, backward, (row, number))
                            self.assertTrue(all(move["op"].startswith("backward: ") for move in moves), moves)

        self.on_two(program)

    def test_other_calls_send_what_the_document_says(self):
        with tempfile.TemporaryDirectory() as folder:
            def program(worker, mesh):
                for name, (call, expected) in CALLS.items():
                    result, counts, _ = sent(mesh, lambda: call(mesh, folder))
                    self.assertEqual(counts, expected, name)
                    del result

            self.on_two(program)

    def test_a_step_sends_what_the_document_says(self):
        def program(worker, mesh):
            for name, ((batch, first, second), forward, backward) in STEPS.items():
                rows, weights = x(mesh, batch).detach(), [x(mesh, first), x(mesh, second)]
                adam = optim.Adam(worker, weights)
                for _ in range(2):
                    with mesh.context() as context:
                        loss, counts, _ = sent(mesh, lambda: ops.linear(ops.linear(rows, weights[0]).tanh(),
                                                                        weights[1]).square().mean())
                        self.assertEqual(counts, forward, name)
                        self.assertEqual(sent(mesh, lambda: context.backward(loss))[1], backward, name)
                        self.assertEqual(sent(mesh, lambda: adam.clip(context, 1.0))[1], REDUCE, name)
                        self.assertEqual(sent(mesh, lambda: adam.step(context))[1], NOTHING, name)

        self.on_two(program)

    def test_a_worker_that_is_closed_leaves_no_handles(self):
        gc.collect()
        before = distag.handle_count()
        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://closed") as worker:
            pass
        begun = distag.Worker(rank=0, world_size=1, rendezvous="inproc://begun")
        begun.start_async()
        begun.close()
        self.assertEqual((distag.handle_count(), worker.is_closed), (before, True))

    def test_a_target_that_is_ignored_is_said_so_by_giving_it(self):
        def program(worker, mesh):
            ignored = indices(mesh, 0, 1, 2, 3, -100, 5, 6, 7, spec=("x",))
            got = x(mesh).cross_entropy(ignored, ignore_index=-100).gather().item()
            wanted = x(mesh).gather().cross_entropy(ignored.gather(), ignore_index=-100).item()
            return abs(got - wanted) < 1e-12 * max(1.0, abs(wanted)) or f"{got}, not {wanted}"

        self.assertEqual(self.on_two(program), [True, True])


if __name__ == "__main__":
    unittest.main()
