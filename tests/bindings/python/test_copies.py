"""Objects with a handle own one reference: none is copied or pickled by the means of Python, which would drop it twice.
A tensor has a deep copy of its own."""
import copy
import pickle
import subprocess
import sys
import unittest
from unittest import mock

import distag
from distag import nn
from support import group, killed_when_late

MIB = 2**20

WAYS = (copy.copy, copy.deepcopy, pickle.dumps)


class Copies(unittest.TestCase):
    def refuses(self, item, ways=WAYS):
        for way in ways:
            with self.assertRaisesRegex(TypeError, f"an? {type(item).__name__} is not copied or pickled"):
                way(item)

    def test_objects_are_not_copied_or_pickled(self):
        with group({"one": lambda: 1}) as (a, _), a.context() as context:
            reference, future = a.rref(1), a.call_async("b", "one")
            sgd = distag.optim.SGD(a, [distag.tensor([1.0], requires_grad=True)], lr=1)
            for item in (a, context, reference, future, context.gradients(), sgd):
                self.refuses(item)

    def test_the_call_that_is_answered_is_not_copied(self):
        def try_to_keep():
            self.refuses(distag.current_call())
            self.refuses(distag.current_call().defer())

        with group([try_to_keep]) as (a, _):
            with self.assertRaisesRegex(distag.DistagError, "dropped it without finishing"):
                a.call("b", "try_to_keep")

    def test_handles_are_not_copied(self):
        x = distag.ones((2,))
        self.refuses(x, (copy.copy, pickle.dumps))
        self.refuses(x._h)
        self.assertEqual(x.tolist(), [1, 1])

    def test_a_tensor_has_a_deep_copy_with_memory_of_its_own(self):
        x = distag.tensor([1.0, 2.0], requires_grad=True)
        y = copy.deepcopy(x)
        self.assertEqual((y.tolist(), y.requires_grad), ([1, 2], True))
        self.assertNotEqual(x, y)
        x.write([5, 6])
        self.assertEqual(y.tolist(), [1, 2])
        self.assertFalse(copy.deepcopy(distag.ones((2,))).requires_grad)

    def test_a_tensor_with_history_has_no_deep_copy(self):
        with self.assertRaisesRegex(distag.UsageError, "history: .*detach"):
            copy.deepcopy(distag.tensor([1.0], requires_grad=True) * 2)

    def test_a_model_is_copied_with_what_it_shares(self):
        model = nn.Sequential(nn.Linear(2, 2, bias=False, seed=1))
        model.parts.append(model.parts[0])
        twin = copy.deepcopy(model)
        self.assertEqual(twin.parts[0].weight, twin.parts[1].weight)
        self.assertNotEqual(twin.parts[0].weight, model.parts[0].weight)
        self.assertEqual(twin.parts[0].weight.tolist(), model.parts[0].weight.tolist())

    def test_a_state_is_loaded_without_a_copy_of_the_model(self):
        count, size = 8, 8 * MIB
        child = subprocess.Popen([sys.executable, "-B", "-c", rf"""
import re
import distag
from distag import nn

def peak():
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1])

def make(value):
    module = nn.Module()
    module.parts = [distag.full(value, ({size // 4},)) for _ in range({count})]
    return module

one, other = make(1.0), make(2.0)
before = peak()
one.load_state_dict(other.state_dict())
print(peak() - before, sum(part.mean().item() for part in one.parts))
"""], stdout=subprocess.PIPE, text=True)
        with killed_when_late(child), child.stdout:
            grown, total = child.stdout.read().split()
        self.assertEqual((child.wait(), float(total)), (0, 2.0 * count))
        print(f"\nfigure: load_state_dict_grows_by_mib {int(grown) / MIB:.1f} of {count * size // MIB}")
        self.assertLess(int(grown), 3 * size)

    def make(self, *parts):
        module = nn.Module()
        module.parts = list(parts)
        return module

    def test_a_state_that_one_tensor_cannot_take_changes_none(self):
        lent = distag.from_dlpack(distag.zeros((2,)))
        module = self.make(distag.zeros((2,)), lent)
        with self.assertRaisesRegex(distag.UsageError, "borrows its memory"):
            module.load_state_dict(self.make(distag.ones((2,)), distag.ones((2,))).state_dict())
        self.assertEqual([part.tolist() for part in module.parts], [[0.0, 0.0]] * 2)

    def test_a_state_of_own_tensors_in_another_order_is_loaded_as_it_was(self):
        module = self.make(*(distag.full(value, (2,)) for value in range(3)))
        state = module.state_dict()
        module.load_state_dict(dict(zip(state, [*list(state.values())[1:], state["parts.0"]])))
        self.assertEqual([part.tolist() for part in module.parts], [[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]])

    def test_after_ctrl_c_all_of_a_state_is_loaded_or_nothing(self):
        for number in range(9):  # before, between and after three trials and three writes
            module = self.make(*(distag.zeros((2,)) for _ in range(3)))
            state = self.make(*(distag.full(value, (2,)) for value in (1.0, 2.0, 3.0))).state_dict()
            assign, calls = distag.Tensor.assign, []

            def interrupted(tensor, source):
                assign(tensor, source)
                calls.append(tensor)
                if len(calls) == number + 1:
                    raise KeyboardInterrupt

            with mock.patch.object(distag.Tensor, "assign", interrupted), self.assertRaises(KeyboardInterrupt):
                module.load_state_dict(state)
            self.assertEqual([part.tolist()[0] for part in module.parts], [1.0, 2.0, 3.0] if number > 5 else [0.0] * 3)

    def test_dtypes_and_errors_travel(self):
        self.assertIs(pickle.loads(pickle.dumps(distag.int64)), distag.int64)
        error = pickle.loads(pickle.dumps(distag.UserError("text", 1042, 3, True)))
        self.assertEqual((error.message, error.code, error.origin_rank, error.may_have_run), ("text", 1042, 3, True))


if __name__ == "__main__":
    unittest.main()
