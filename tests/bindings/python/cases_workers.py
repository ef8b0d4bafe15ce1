"""Cases with workers: calls, values, backward passes through several workers, objects."""
import gc
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import distag
from support import cases, fails, group, near, same

CASES, case = cases()


def double(x):
    return x * 2


def echo(x):
    return x


def square(x):
    return x * x


def here():
    return distag.current_call().worker


@case("workers: two in one process call each other")
def call_each_other(given):
    with group([double]) as (a, b):
        same(a.call("b", "double", given["argument"]), given["answer"])
        same(b.call("a", double, given["argument"]), given["answer"])


@case("workers: an async call")
def async_call(given):
    with group([double]) as (a, _):
        futures = [a.call_async("b", "double", each) for each in given["arguments"]]
        same(distag.wait_all(futures, 10), given["answers"])


@case("workers: a value that stays is made and fetched")
def stays(given):
    with group([echo]) as (a, _):
        reference = a.remote("b", "echo", given["made"])
        same(reference.owner, "b")
        same(reference.is_owner, False)
        same(reference.fetch(timeout=120), given["fetched"])


@case("workers: a nested call back to the caller")
def nested(given):
    def ask_back(x):
        return here().call(distag.current_call().caller, "double", x) + 1

    with group([double, ask_back]) as (a, _):
        same(a.call("b", "ask_back", given["argument"]), given["answer"])


@case("workers: 100 calls at once from 8 threads or tasks")
def at_once(given):
    with group([double]) as (a, _), ThreadPoolExecutor(given["callers"]) as pool:
        answers = list(pool.map(lambda each: a.call("b", "double", each, context=None), range(given["calls"])))
    same(sum(answers), given["sum"])


@case("workers: a function that raises")
def raises(given):
    def find():
        raise KeyError("no such user")

    with group([find]) as (a, _), fails(given, distag.UserError):
        a.call("b", "find")


@case("workers: status 1042 is kept with its rank")
def own_status(given):
    def refuse():
        raise distag.UserError("not today", given["status"])

    def pass_on():
        return here().call("b", "refuse")

    with group([refuse, pass_on]) as (a, b):
        with fails(given, distag.UserError):
            a.call("b", "refuse")
        with fails(given, distag.UserError):
            a.call("a", "pass_on")


@case("workers: an unknown function")
def unknown(given):
    with group() as (a, _), fails(given, distag.UsageError):
        a.call("b", given["function"])


@case("workers: a deadline")
def deadline(given):
    release = threading.Event()
    with group({"wait": lambda: release.wait(120) and None}) as (a, _):
        with fails(given, distag.GaveUpError):
            a.call("b", "wait", timeout=given["timeout_ms"] / 1000)
        release.set()


@case("workers: a cancellation reaches the callee")
def cancellation(given):
    began, heard = threading.Event(), threading.Event()

    def wait():
        call = distag.current_call()
        began.set()
        while not call.is_cancelled:
            threading.Event().wait(0.002)
        heard.set()

    with group([wait]) as (a, _):
        future = a.call_async("b", "wait")
        assert began.wait(120)
        future.cancel()
        with fails(given, distag.GaveUpError):
            future.result()
        assert heard.wait(120)


@case("workers: a deferred reply from another thread")
def deferred(given):
    threads = []

    def later():
        reply = distag.current_call().defer()
        threads.append(threading.Thread(target=lambda: reply.finish(given["answer"])))
        threads[-1].start()

    with group([later]) as (a, _):
        same(a.call("b", "later", timeout=120), given["answer"])
        threads[0].join()


@case("workers: a second worker of another job")
def another_job(given):
    with group([double]) as (a, _), group([double], names=("c", "d")) as (c, _):
        same(c.call("d", "double", 2), 4)
        with fails(given, distag.UsageError):
            a.call("c", "double", 1)


@case("values: every kind there and back")
def every_kind(given):
    with group([echo]) as (a, _):
        for value in given["values"]:
            same(a.call("b", "echo", value), value)
        same(math.copysign(1, a.call("b", "echo", -0.0)), -1.0)
        for digits in given["bytes_hex"]:
            same(a.call("b", "echo", bytes.fromhex(digits)), bytes.fromhex(digits))
        same(a.call("b", "echo", distag.tensor(given["tensor"])).tolist(), given["tensor"])
        reference = a.rref({"kept": 1})
        same(a.call("b", "echo", [reference])[0] == reference, True)
        same(reference.local(), {"kept": 1})


@case("values: 16 deep travels, 17 deep is refused")
def depth(given):
    nested_lists = "leaf"
    for _ in range(given["depth"]):
        nested_lists = [nested_lists]
    with group([echo]) as (a, _):
        same(a.call("b", "echo", nested_lists), nested_lists)
        with fails(given, distag.UsageError):
            a.call("b", "echo", [nested_lists])


@case("values: 2^53 + 1 keeps its value")
def big_integer(given):
    with group([echo]) as (a, _):
        same(a.call("b", "echo", given["value"]), given["value"])
        same(a.call("b", "echo", [given["value"]]), [given["value"]])


@case("values: not a number stays one")
def not_a_number(given):
    with group([echo]) as (a, _):
        same(math.isnan(a.call("b", "echo", math.nan)), True)


@case("values: a text with NUL is refused")
def nul(given):
    with group([echo]) as (a, _), fails(given, distag.UsageError):
        a.call("b", "echo", "a\0b")


@case("values: 1 MiB of bytes")
def many_bytes(given):
    data = bytes(range(256)) * (given["size"] // 256)
    with group([echo]) as (a, _):
        same(a.call("b", "echo", data), data)


@case("values: an error names the path")
def path(given):
    with group([echo]) as (a, _), fails(dict(given, message_has=[given["path"]]), distag.UsageError):
        a.call("b", "echo", 1, {"layers": [object()]})


@case("backward: through two workers")
def two_workers(given):
    x = distag.tensor(given["x"], distag.float32, requires_grad=True)
    with group([square]) as (a, _), a.context() as context:
        loss = a.call("b", "square", x).sum()
        near(loss.item(), given["loss"])
        context.backward(loss)
        near(context.gradient(x).tolist(), given["gradient"])


@case("backward: through A, B and A again")
def there_and_back(given):
    def twice_square(x):
        return here().call("a", "square", x) * 2

    x = distag.tensor(given["x"], distag.float32, requires_grad=True)
    with group([square, twice_square]) as (a, _), a.context() as context:
        loss = a.call("b", "twice_square", x).sum()
        near(loss.item(), given["loss"])
        context.backward(loss)
        near(context.gradient(x).tolist(), given["gradient"])


@case("backward: gradients are read on both sides")
def both_sides(given):
    weight = distag.tensor(given["weight"], distag.float32, requires_grad=True)
    kept = []

    def scale(x):
        kept.append(distag.current_call().context)
        return x * weight

    def gradient():
        return kept[0].gradient(weight)

    x = distag.tensor(given["x"], distag.float32, requires_grad=True)
    with group([scale, gradient]) as (a, _):
        with a.context() as context:
            context.backward(a.call("b", "scale", x).sum())
            near(context.gradient(x).tolist(), given["gradient_of_x"])
            near(a.call("b", "gradient", context=None).tolist(), given["gradient_of_weight"])
        kept.clear()


class Broken(distag.CustomOp):
    def forward(self, x):
        return x * 1.0

    def backward(self, gradient):
        raise RuntimeError("out of luck")


@case("backward: a failure in a remote custom op names it")
def failing_op(given):
    x = distag.tensor([1.0], requires_grad=True)
    with group({"run": lambda each: Broken()(each)}) as (a, _), a.context() as context:
        loss = a.call("b", "run", x).sum()
        with fails(given):
            context.backward(loss)


class Counter:
    freed = 0

    def __init__(self):
        self.number = 0

    def __del__(self):
        Counter.freed += 1


@case("objects: behind a reference, used by a function, freed once")
def objects(given):
    Counter.freed = 0

    def count(reference):
        counter = reference.local()
        counter.number += 1
        return counter.number

    with group({"make": Counter, "count": count}) as (a, _):
        reference = a.remote("b", "make")
        same([a.call("b", "count", reference) for _ in range(given["calls"])], given["answers"])
        same(Counter.freed, 0)
        reference.close()
    gc.collect()
    same(Counter.freed, given["freed"])
