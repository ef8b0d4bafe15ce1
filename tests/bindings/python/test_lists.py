"""Lists of the wrong length, where C reads as many as something else says: tests/bindings/lists/lists.txt."""
import unittest

import distag


class Tensors(distag.CustomOp):
    """Gives as many tensors as it is told."""

    def __init__(self, outputs, gradients):
        self.outputs, self.gradients = outputs, gradients

    def forward(self, x):
        return [x * 1.0 for _ in range(self.outputs)]

    def backward(self, gradient):
        return [gradient for _ in range(self.gradients)]


class Lists(unittest.TestCase):
    def refused(self, words, call, *arguments, **named):
        with self.assertRaisesRegex(distag.DistagError, words) as caught:
            call(*arguments, **named)
        self.assertEqual(caught.exception.code, 10)

    def test_windows_have_two_numbers(self):
        x, weight = distag.zeros((1, 1, 4, 4)), distag.ones((1, 1, 2, 2))
        for given in ((1, 1, 1), (), (1,)):
            words = f"two numbers are wanted \\(rows, columns\\), not {len(given)}"
            for name in ("stride", "padding"):
                self.refused(words, distag.conv2d, x, weight, **{name: given})
                self.refused(words, x.max_pool2d, 2, **{name: given})
            self.refused(words, x.max_pool2d, given)
        self.assertEqual(x.max_pool2d((2, 2), stride=(1, 2)).shape, (1, 1, 3, 2))

    def test_seeds_are_as_many_as_roots(self):
        x, seed = distag.ones(3).requires_grad_(), distag.ones(3)
        with distag.Context() as context:
            for roots, seeds in (([x * 1, x * 2], [seed]), ([x * 1], [seed, seed]), ([x * 1], [])):
                self.refused(f"{len(roots)} roots, but {len(seeds)} seeds", context.backward, roots, seeds)
            context.backward([x * 1, x * 2], [seed, seed])
            self.assertEqual(context.gradient(x).tolist(), [3.0] * 3)

    def test_axes_have_names(self):
        for axes in (("x",), ("x", "y", "z"), ()):
            self.refused("axes: as many names as the shape has sizes are wanted, 2", distag.Mesh, (2, 3), axes)

    def test_axes_have_outer_sizes(self):
        for outer in ((2,), (2, 1, 1), ()):
            words = f"outer_shape: as many numbers as shape has are wanted, 2, not {len(outer)}"
            self.refused(words, distag.Mesh, (1, 2), ("x", "y"), ranks=range(4), outer_shape=outer,
                         granules=[0, 0, 1, 1])
        self.refused("granules: as many numbers as ranks has are wanted, 4, not 3", distag.Mesh, (1, 2), ("x", "y"),
                     ranks=range(4), outer_shape=(2, 1), granules=[0, 0, 1])

    def test_custom_ops_give_as_many_tensors_as_are_wanted(self):
        x = distag.ones(2).requires_grad_()
        for outputs in (0, 2):
            with self.assertRaisesRegex(distag.DistagError, f"forward gives 1 tensors, not {outputs}"):
                Tensors(outputs, 1)(x)
        for gradients in (0, 2):
            with distag.Context() as context:
                with self.assertRaisesRegex(distag.DistagError, f"backward gives 1 tensors, not {gradients}"):
                    context.backward(Tensors(1, gradients)(x).sum())


if __name__ == "__main__":
    unittest.main()
