"""Gradients of gradients: a Hessian times a vector, a gradient penalty that trains, what is refused."""
import unittest

import distag
from support import group


class CreateGraph(unittest.TestCase):
    def test_three_passes(self):
        x = distag.tensor([2.0, -1.0], distag.float64, requires_grad=True)
        values = (x * x * x).sum()
        for expected in ([12.0, 3.0], [12.0, -6.0], [6.0, 6.0]):
            with distag.Context() as context:
                context.backward(values, create_graph=True)
                gradient = context.gradient(x)
            self.assertEqual(gradient.tolist(), expected)
            if expected != [6.0, 6.0]:
                self.assertTrue(gradient.requires_grad)
            values = gradient.sum()

    def test_seeds_lead_on(self):
        x = distag.tensor([2.0, 3.0], distag.float64, requires_grad=True)
        seed = distag.tensor([5.0, 7.0], distag.float64, requires_grad=True)
        with distag.Context() as first, distag.Context() as second:
            first.backward([x * x], [seed], create_graph=True)
            second.backward(first.gradient(x).sum())
            self.assertEqual(second.gradient(seed).tolist(), [4.0, 6.0])

    def test_gradient_penalty(self):
        """The length of the critic's gradient by its input goes to 1."""
        critic = distag.tensor([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]], distag.float64, requires_grad=True)
        last = distag.tensor([0.7, -0.3, 0.2], distag.float64, requires_grad=True)
        points = distag.tensor([[0.5, -1.0], [1.5, 0.2]], distag.float64, requires_grad=True)
        sgd = distag.optim.SGD(None, [critic, last], lr=0.2)
        losses = []
        for _ in range(60):
            scores = distag.linear(points, critic).tanh() @ last
            with distag.Context() as first, distag.Context() as second:
                first.backward(scores.sum(), create_graph=True)
                slopes = first.gradient(points)
                lengths = (slopes * slopes).sum([1]).sqrt()
                penalty = ((lengths - 1) * (lengths - 1)).mean()
                second.backward(penalty)
                sgd.step(second)
            losses.append(penalty.item())
        self.assertLess(losses[-1], 0.1 * losses[0])

    def test_across_workers(self):
        with group({"square": lambda x: x * x}) as (a, _):
            x = distag.tensor([2.0], distag.float64, requires_grad=True)
            for mode in ("smart", "fast"):
                with a.context() as context:
                    y = a.call("b", "square", x)
                    context.backward((y * x).sum(), create_graph=True, mode=mode)
                    gradient = context.gradient(x)
                    self.assertEqual(gradient.detach().item(), 12)
                    context.backward(gradient.sum(), mode=mode)
                    self.assertEqual(context.gradient(x).detach().item(), 12 + 12)


if __name__ == "__main__":
    unittest.main()
