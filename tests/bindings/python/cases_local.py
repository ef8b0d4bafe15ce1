"""Cases within one process, without a worker."""
import distag
from support import cases, fails, lines, near, same, tensor_of

CASES, case = cases()
BY_NAME = {"float32": distag.float32, "float64": distag.float64, "int64": distag.int64, "bool": distag.bool_}


@case("tensor: every dtype, made and read")
def every_dtype(given):
    for numbers in given["tensors"]:
        dtype = BY_NAME[numbers["dtype"]]
        made = distag.tensor(numbers["data"], dtype).reshape(numbers["shape"])
        same(made.dtype, dtype)
        same(made.shape, tuple(numbers["shape"]))
        same(made.reshape(-1).tolist(), numbers["data"])


@case("tensor: without elements, without dims, with strides")
def shapes(given):
    empty = distag.zeros(given["empty_shape"])
    same(empty.shape, tuple(given["empty_shape"]))
    same(empty.size, 0)
    same(distag.tensor(given["scalar"]).item(), given["scalar"])
    same(distag.tensor(given["scalar"]).shape, ())
    matrix = distag.tensor(given["matrix"])
    same(matrix.T.tolist(), given["transposed"])
    same(matrix[:, ::2].tolist(), given["every_second_column"])


def check_op(given, line):
    """One line of the reference numbers, forward and backward."""
    attributes = {key: value for key, value in line["attributes"].items() if value is not None}
    inputs = [tensor_of(numbers, wanted is not None) for numbers, wanted in
              zip(line["inputs"], line.get("grad_inputs") or [None] * len(line["inputs"]))]
    outputs = distag.apply(line["op"], inputs, attributes, len(line["outputs"]))
    for output, expected in zip(outputs, line["outputs"]):
        same(list(output.shape), expected["shape"])
        near(output.reshape(-1).tolist(), expected["data"], given["absolute"], given["relative"])
    if any(each is not None and each.requires_grad for each in inputs):
        with distag.Context() as context:
            check_gradients(given, line, context, inputs, outputs)


def check_gradients(given, line, context, inputs, outputs):
    context.backward(outputs, [tensor_of(numbers) for numbers in line["grad_outputs"]])
    gradients = context.gradients()
    for each, expected in zip(inputs, line["grad_inputs"]):
        if expected is not None and each.requires_grad:
            near(gradients[each].reshape(-1).tolist(), expected["data"], given["absolute"], given["relative"])


def check_method(given, line):
    """The function of the binding's own gives the same as the op by its name."""
    function = getattr(distag, line["op"])
    inputs = [tensor_of(numbers) for numbers in line["inputs"]]
    attributes = {key: value for key, value in line["attributes"].items() if value is not None}
    is_list = line["op"] in ("concat", "stack")
    found = function(inputs, **attributes) if is_list else function(*inputs, **attributes)
    for output, expected in zip(found if isinstance(found, list) else [found], line["outputs"]):
        near(output.reshape(-1).tolist(), expected["data"], given["absolute"], given["relative"])


def check_other(line):
    """An op without reference numbers of its own."""
    attributes = dict(line["attributes"])
    if "dtype" in attributes:
        attributes["dtype"] = BY_NAME[attributes["dtype"]]
    found = getattr(distag, line["op"])(*[distag.tensor(numbers) for numbers in line["inputs"]], **attributes)
    same([each.tolist() for each in (found if isinstance(found, list) else [found])], line["outputs"])


@case("tensor: every op once with reference numbers")
def every_op(given):
    seen = set()
    for line in lines(given):
        if line["op"] in given["not_in_the_library"]:
            continue
        check_op(given, line)
        check_method(given, line)
        seen.add(line["op"])
    for line in given["others"]:
        check_other(line)
        seen.add(line["op"])
    same(sorted(set(distag.ops.__all__) - seen), [])


@case("tensor: write and assign in place")
def write(given):
    x = distag.tensor(given["before"], distag.float32)
    view = x[1:]
    x.write(given["written"])
    same(view.tolist(), [float(each) for each in given["written"][1:]])
    x.assign(given["assigned"])
    near(x.tolist(), given["expected_assigned"])
    x.add_scaled(distag.tensor(given["added"]), given["scale"])
    near(x.tolist(), given["expected_added"])


@case("tensor: a read copy or snapshot is not changed by a write")
def read_copies(given):
    x = distag.tensor(given["before"])
    copy, array, snapshot = distag.tensor(x), x.tolist(), x.snapshot()
    x.write(given["written"])
    same(copy.tolist(), given["before"])
    same(snapshot.tolist(), given["before"])
    same(array, given["before"])
    same(x.tolist(), given["written"])


@case("tensor: a view of its memory outlives it")
def view_outlives(given):
    x = distag.tensor(given["data"])
    try:
        import numpy
    except ImportError:
        view = memoryview(x.tobytes()).cast("f")
    else:
        view = numpy.asarray(x)
    x.write([0, 0, 0])
    x.close()
    del x
    same([float(each) for each in view], given["data"])


@case("tensor: a wrong shape is an error that names it")
def wrong_shape(given):
    with fails(given, distag.UsageError):
        distag.zeros(given["left"]) @ distag.zeros(given["right"])


@case("local: backward through two layers")
def two_layers(given):
    x, w1, b1, w2 = (distag.tensor(given[name], distag.float64) for name in ("x", "w1", "b1", "w2"))
    parameters = {"w1": w1, "b1": b1, "w2": w2}
    for parameter in parameters.values():
        parameter.requires_grad = True
    hidden = distag.linear(x, w1, b1).tanh()
    loss = distag.cross_entropy(distag.linear(hidden, w2), distag.tensor(given["targets"]))
    near(loss.item(), given["loss"], given["tolerance"])
    with distag.Context() as context:
        context.backward(loss)
        gradients = context.gradients()
    for name, parameter in parameters.items():
        near(gradients[parameter].tolist(), given["gradients"][name], given["tolerance"])


class Scale(distag.CustomOp):
    def __init__(self, scale):
        self.scale = scale

    def forward(self, x):
        return x * self.scale

    def backward(self, gradient):
        return gradient * self.scale


@case("local: a custom op")
def custom_op(given):
    x = distag.tensor(given["x"], distag.float32, requires_grad=True)
    y = Scale(given["scale"])(x)
    near(y.tolist(), given["y"])
    with distag.Context() as context:
        context.backward(y.sum())
        near(context.gradient(x).tolist(), given["gradient"])


@case("local: a hook sees the gradient and gives another")
def hook(given):
    x = distag.tensor(given["x"], distag.float32, requires_grad=True)
    seen = []

    def scale(gradient):
        seen.append(gradient.tolist())
        return gradient * given["given_scale"]

    hook_id = x.add_hook(scale)
    loss = (x * 2).sum()
    with distag.Context() as context:
        context.backward(loss)
        near(context.gradient(x).tolist(), given["gradient"])
    near(seen, [given["seen"]])
    x.remove_hook(hook_id)


KINDS = {kind.kind: kind for kind in (distag.optim.SGD, distag.optim.Adagrad, distag.optim.Adam, distag.optim.AdamW,
                                      distag.optim.Adadelta, distag.optim.RMSprop, distag.optim.Adamax,
                                      distag.optim.Rprop)}


@case("local: an optimizer of each kind, one step")
def optimizers(given):
    seen = set()
    for line in lines(given):
        parameter = tensor_of(line["initial"], True)
        step = line["steps"][0]
        optimizer = KINDS[line["optimizer"]](None, [parameter], **line["settings"])
        with distag.Context() as context:
            context.backward([parameter.mul_scalar(1.0)], [tensor_of(step["gradient"])])
            optimizer.step(context)
        near(parameter.reshape(-1).tolist(), step["parameter"]["data"], given["absolute"], given["relative"])
        seen.add(line["optimizer"])
    same(seen, set(KINDS))
