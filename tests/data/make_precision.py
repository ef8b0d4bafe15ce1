#!/usr/bin/python3
"""Makes precision.json: the errors of PyTorch in float32, in eps, on the cases of tests/precision that both have.

Run with Debian's python3-torch (1.13), one thread. Numbers and measure are those of tests/precision/cases.cpp and
precision_test.cpp: [error of the output, error of the gradient], against the same op in float64.
"""
import json
import sys

import numpy
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
EPS = 2.0**-23


def numbers(shape, mean, seed):
    count = int(numpy.prod(shape))
    with numpy.errstate(over="ignore"):
        z = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
        z += numpy.uint64(seed) * numpy.uint64(0xD1B54A32D192ED03)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z ^= z >> numpy.uint64(31)
    u = (z >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
    return torch.from_numpy((mean + 1.7320508075688772 * (2 * u - 1)).astype(numpy.float32)).reshape(shape)


def indices(count, below):
    return torch.arange(count) % below


def apply(compute, inputs):
    leaves = [x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    y = compute(*leaves)
    seed = (1 + torch.arange(y.numel()) % 2).to(y.dtype).reshape(y.shape)
    y.backward(seed)
    return y.detach(), [x.grad for x in leaves if x.is_floating_point()]


def error(narrow, wide, terms, by_element):
    narrow, wide, terms = narrow.double(), wide.abs() * 0 + wide, terms.abs()
    scale = torch.maximum(wide.abs(), terms)
    if not by_element:
        scale = scale.max()
    difference = (narrow - wide).abs()
    relative = torch.where(difference == 0, torch.zeros_like(difference), difference / scale / EPS)
    return relative.max().item()


def measure(compute, inputs, by_element):
    wide_inputs = [x.double() if x.is_floating_point() else x for x in inputs]
    narrow = apply(compute, inputs)
    wide = apply(compute, wide_inputs)
    terms = apply(compute, [x.abs() if x.is_floating_point() else x for x in wide_inputs]) if by_element else wide
    gradient = max(error(n, w, t, False) for n, w, t in zip(narrow[1], wide[1], terms[1]))
    if compute is log_softmax:
        gradient /= 1 + wide[0].abs().max().item()
    return [float("%.4g" % error(narrow[0], wide[0], terms[0], by_element)), float("%.4g" % gradient)]


def log_softmax(x):
    return torch.log_softmax(x, 0)


def cases(n, mean):
    x, y, one = numbers([n], mean, 1), numbers([n], mean, 2), numbers([1], mean, 3)
    columns = numbers([n // 10, 10], mean, 1)
    seven = numbers([7], mean, 6)
    for name, compute in (("sum", torch.sum), ("mean", torch.mean), ("cumsum", lambda v: v.cumsum(0)), ("var", torch.var),
                          ("logsumexp", lambda v: v.logsumexp(0))):
        yield name, compute, [x], True
    for name, compute in (("sum", lambda v: v.sum(0)), ("mean", lambda v: v.mean(0)), ("var", lambda v: v.var(0)),
                          ("cumsum", lambda v: v.cumsum(0))):
        yield name, compute, [columns], True
    yield "softmax", lambda v: torch.softmax(v, 0), [x], False
    yield "log_softmax", log_softmax, [x], False
    yield ("layer_norm", lambda v, w, b: F.layer_norm(v, w.shape, w, b),
           [columns.reshape(10, n // 10), numbers([n // 10], 1, 4), numbers([n // 10], 0, 5)], False)
    yield "mse_loss", F.mse_loss, [x, y], True
    yield "l1_loss", F.l1_loss, [x, y], True
    yield "cross_entropy", F.cross_entropy, [columns, indices(n // 10, 10)], True
    yield "nll_loss", F.nll_loss, [columns, indices(n // 10, 10)], True
    yield "add", torch.add, [x, one], True
    yield "sub", torch.sub, [x, one], True
    yield "mul", torch.mul, [x, one], True
    yield "expand", lambda v: v.expand(n), [one], True
    yield "gather", lambda v, i: v.gather(0, i), [seven, indices(n, 7)], True
    yield "index_select", lambda v, i: v.index_select(0, i), [seven, indices(n, 7)], True
    yield "embedding", lambda i, w: F.embedding(i, w), [indices(n // 10, 7), numbers([7, 10], mean, 6)], True


def main():
    result = {}
    for n in (1000, 100000, 10000000):
        for mean in (0, 100):
            for name, compute, inputs, by_element in cases(n, mean):
                shape = inputs[-1].shape if name != "expand" else inputs[-1].shape
                title = "%s [%s] %d %d" % (name, ", ".join(str(size) for size in shape), n, mean)
                result[title] = measure(compute, inputs, by_element)
                print(title, result[title], file=sys.stderr, flush=True)
    lines = ",\n".join('  %s: %s' % (json.dumps(title), json.dumps(errors)) for title, errors in result.items())
    print("{\n%s\n}" % lines)


main()
