"""Objects with a handle own one reference: none is copied or pickled by the means of Python, which would drop it twice.
A tensor has a deep copy of its own."""
import copy
import pickle
import unittest

import distag
from distag import nn
from support import group

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

    def test_dtypes_and_errors_travel(self):
        self.assertIs(pickle.loads(pickle.dumps(distag.int64)), distag.int64)
        error = pickle.loads(pickle.dumps(distag.UserError("text", 1042, 3, True)))
        self.assertEqual((error.message, error.code, error.origin_rank, error.may_have_run), ("text", 1042, 3, True))


if __name__ == "__main__":
    unittest.main()
