"""Bad days: Ctrl-C, failures where nobody expects them, collectors, forks, threads that end at the wrong time."""
import concurrent.futures
import ctypes
import functools
import gc
import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings

import distag
from distag import _callbacks, _interrupts, _library, _life, _raw, custom, errors, functions, futures, worker
from support import group, killed_when_late, wait_for_child

HEAD = """
import sys, threading, time, distag
served = threading.Semaphore(0)
pause = threading.Event()
@distag.function
def wait_quietly():
    call = distag.current_call()
    served.release()
    while not call.is_cancelled:
        pause.wait(0.005)
    print("cancelled\\n", end="", flush=True)
@distag.function
def wait_long():
    print("running", flush=True)
    wait_quietly()
def is_in(name):
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None
def say_when_in(name):
    def look():
        while not is_in(name):
            pause.wait(0.001)
        print("running", flush=True)
    threading.Thread(target=look, daemon=True).start()
def in_thread():
    try:
        a.call("b", "wait_long")
    except distag.DistagError:
        pass
def pair():
    ab = [distag.Worker(name, rank=rank, world_size=2, rendezvous="inproc://bad") for rank, name in enumerate("ab")]
    distag.wait_all([worker.start_async(120) for worker in ab])
    return ab
"""


def run_until_interrupted(test, program):
    """Runs a program that prints a line and then waits for ever, interrupts it, and gives its code and its output."""
    child = subprocess.Popen([sys.executable, "-B", "-W", "error", "-c", HEAD + program], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    with killed_when_late(child):
        test.assertEqual(child.stdout.readline(), "running\n")
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        heard = child.stdout.readline()
        took = time.monotonic() - began
        out, err = child.stdout.read(), child.stderr.read()  # communicate() leaves out what readline() has read ahead
        child.wait()
    for pipe in (child.stdout, child.stderr):
        pipe.close()
    print(f"\nfigure: {test.id().removeprefix('__main__.')}_ms {1e3 * took:.1f} ms")
    return child.returncode, heard + out, err


class Interrupts(unittest.TestCase):
    def test_a_call_hears_ctrl_c_and_is_cancelled_at_the_callee(self):
        code, out, err = run_until_interrupted(self, """
a, b = pair()
try:
    a.call("b", "wait_long", timeout=distag.FOREVER)
except KeyboardInterrupt:
    print("heard", flush=True)
for worker in (a, b):
    worker.close()
""")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(out.split()), ["cancelled", "heard"])

    def test_a_start_and_a_shutdown_hear_it(self):
        code, out, err = run_until_interrupted(self, """
a = distag.Worker("a", rank=0, world_size=2, rendezvous="inproc://bad")
try:
    print("running", flush=True)
    a.start(distag.FOREVER)
except KeyboardInterrupt:
    print("heard", flush=True)
""")
        self.assertEqual((code, out, err), (0, "heard\n", ""))
        code, out, err = run_until_interrupted(self, """
a, b = pair()
try:
    print("running", flush=True)
    a.shutdown()
except KeyboardInterrupt:
    print("heard", flush=True)
""")
        self.assertEqual((code, out, err), (0, "heard\n", ""))

    def test_wait_all_hears_it_and_cancels_all(self):
        code, out, err = run_until_interrupted(self, """
a, b = pair()
futures = [a.call_async("b", "wait_quietly", timeout=distag.FOREVER) for _ in range(2)]
for _ in futures:
    served.acquire()
say_when_in("wait_in_slices")
try:
    distag.wait_all(futures)
except KeyboardInterrupt:
    print("heard", flush=True)
for worker in (a, b):
    worker.close()
""")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(out.split()), ["cancelled", "cancelled", "heard"])

    def test_unregister_hears_it(self):
        code, out, err = run_until_interrupted(self, """
a, b = pair()
future = a.call_async("b", "wait_quietly", timeout=distag.FOREVER)
served.acquire()
say_when_in("withdraw")
try:
    b.unregister("wait_quietly")
except KeyboardInterrupt:
    print("heard", flush=True)
for worker in (a, b):
    worker.close()
""")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(out.split()), ["cancelled", "heard"])

    def test_one_that_is_not_caught_leaves_with_a_traceback(self):
        code, _, err = run_until_interrupted(self, 'a, b = pair()\na.call("b", "wait_long", timeout=distag.FOREVER)\n')
        self.assertIn(code, (-signal.SIGINT, 130))
        self.assertIn("KeyboardInterrupt", err)


def interrupt(*args):
    signal.raise_signal(signal.SIGINT)


class Interrupted(distag.CustomOp):
    def __init__(self, forward=lambda x: x * 1.0, backward=lambda gradient: gradient):
        self.forward, self.backward = forward, backward

    def forward(self, x):
        raise NotImplementedError

    def backward(self, gradient):
        raise NotImplementedError


class InterruptsOfArguments(unittest.TestCase):
    def test_while_an_argument_is_converted_it_is_no_error_of_that(self):
        class Two:
            def __index__(self):
                signal.raise_signal(signal.SIGINT)
                return 2

        x = distag.ones((2, 2))
        for use in (lambda: x.softmax(Two()), lambda: distag.zeros((Two(),)), lambda: distag.rand(Two(), (2,))):
            with self.assertRaises(KeyboardInterrupt):
                use()


class InterruptsOfCallbacks(unittest.TestCase):
    """Ctrl-C in a callback that the library runs on the main thread ends the call below which it ran."""

    def tearDown(self):
        self.assertFalse(errors.Interrupt.is_due)

    def test_of_a_function_a_callback_or_a_continuation_ends_the_poll(self):
        def poll_until_interrupted(a):
            with self.assertRaises(KeyboardInterrupt):
                while True:
                    a.wait(120)
                    a.poll(1)

        with distag.Worker("a", rank=0, world_size=1, rendezvous="inproc://interrupted", executor="host",
                           functions=[interrupt]) as a:
            future = a.call_async("a", "interrupt")
            poll_until_interrupted(a)
            future.add_done_callback(interrupt)
            poll_until_interrupted(a)
            chained = future.then(interrupt)
            poll_until_interrupted(a)
            for each in (future, chained):
                with self.assertRaisesRegex(distag.UserError, "KeyboardInterrupt"):
                    each.result(120)

    def test_of_a_function_ends_the_wait_that_runs_it(self):
        with distag.Worker("a", rank=0, world_size=1, rendezvous="inproc://interrupted", executor="host",
                           functions=[interrupt]) as a, self.assertRaises(KeyboardInterrupt):
            a.call("a", "interrupt")

    def test_of_an_op_and_a_hook_ends_their_call(self):
        x = distag.tensor([1.0], requires_grad=True)
        with self.assertRaises(KeyboardInterrupt):
            Interrupted(forward=interrupt)(x)
        hooked = distag.tensor([1.0], requires_grad=True)
        hooked.add_hook(interrupt)
        for loss in (Interrupted(backward=interrupt)(x).sum(), (hooked * 2).sum()):
            with distag.Context() as context, self.assertRaises(KeyboardInterrupt):
                context.backward(loss)

    def test_that_came_before_a_callback_began_is_kept_for_the_call(self):
        err = _raw.distag_error()
        for callback in (functions.CALL, futures.DONE, futures.THEN, custom.FORWARD, custom.BACKWARD, custom.HOOK,
                         worker.LOG, worker.ON_MEMBER):
            arguments = [kind() for kind in callback._argtypes_]
            arguments[-1:] = [ctypes.addressof(err)] if callback._restype_ else arguments[-1:]
            # Two calls in C: between them Python does not look for signals.
            list(map(operator.call, [ctypes.pythonapi.PyErr_SetInterrupt, functools.partial(callback, *arguments)]))
            with self.assertRaises(KeyboardInterrupt):
                errors.raise_interrupt()


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("not even a text")


class Endless(Exception):
    def __str__(self):
        return str(self)


class Exits(Exception):
    def __str__(self):
        sys.exit(3)


class Unnamed(type):
    def __getattribute__(cls, name):
        if name == "__name__":
            raise RuntimeError("not even a name")
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=Unnamed):
    pass


class Recalls(Exception):
    """Calls its worker where its text is asked for, and where it ends."""

    def __str__(self):
        return f"called {self.args[0].call('b', 'one')}"

    def __del__(self):
        ENDED.append(self.args[0].call("b", "one"))
        raise RuntimeError("not even an end")


ENDED = []
UNPRINTABLE = {Unprintable: "Unprintable: .*its text cannot be read: .*RuntimeError", Endless: "Endless: .*RecursionError",
               Exits: "Exits: .*SystemExit", Nameless: "exception: .*RuntimeError", Recalls: "Recalls: called 1"}


def leave():
    sys.exit(3)


class Failures(unittest.TestCase):
    def setUp(self):
        self.unraisable = []
        self.hook, sys.unraisablehook = sys.unraisablehook, self.unraisable.append

    def tearDown(self):
        sys.unraisablehook = self.hook

    def test_a_failure_without_a_text_still_fails_the_call(self):
        kinds = list(UNPRINTABLE)

        def fail(number):
            raise kinds[number](distag.current_call().worker)

        with group({"fail": fail, "one": lambda: 1}) as (a, _):
            for number, kind in enumerate(kinds):
                with self.assertRaisesRegex(distag.UserError, UNPRINTABLE[kind]) as raised:
                    a.call("b", "fail", number)
                self.assertEqual(raised.exception.code, distag.Status.USER)
                self.assertEqual(a.call("b", "one"), 1)
            gc.collect()
        self.assertEqual(ENDED, [1])
        self.assertEqual([str(each.exc_value) for each in self.unraisable], ["not even an end"])

    def test_an_exit_is_a_failure_of_the_call(self):
        with group([leave]) as (a, _), self.assertRaisesRegex(distag.UserError, "SystemExit: 3"):
            a.call("b", "leave")

    def test_a_result_that_is_no_value_fails_the_call_and_names_it(self):
        with group({"give": lambda: [1, object()]}) as (a, _):
            with self.assertRaisesRegex(distag.UsageError, r"result\[1\]"):
                a.call("b", "give")

    def test_a_late_result_that_is_no_value_fails_the_call_and_names_it(self):
        late = concurrent.futures.Future()
        with group({"give": lambda: late}) as (a, _):
            future = a.call_async("b", "give")
            late.set_result([1, object()])
            with self.assertRaisesRegex(distag.UsageError, r"result\[1\]"):
                future.result(120)
        self.assertEqual(self.unraisable, [])

    def test_a_reply_is_refused_once_its_function_has_failed(self):
        replies = []

        def both():
            replies.append(distag.current_call().defer())
            raise ValueError("after all")

        with group([both]) as (a, _):
            with self.assertRaisesRegex(distag.UserError, "after all"):
                a.call("b", "both")
            for answer in (replies[0].finish, lambda: replies[0].fail(ValueError("late"))):
                with self.assertRaisesRegex(distag.UsageError, "its function failed") as raised:
                    answer()
                self.assertEqual(raised.exception.code, distag.Status.INVALID_STATE)

    def test_an_object_answers_a_remote_call_only(self):
        with group({"give": object}) as (a, _):
            with self.assertRaises(distag.DistagError):
                a.call("b", "give")

    def test_callbacks_of_futures_members_and_logs_let_nothing_through(self):
        called = {name: threading.Event() for name in ("member", "log", "callback")}

        def broken(name):
            def fail(*args):
                called[name].set()
                raise ValueError(f"broken {name}")
            return fail

        with group({"fail": lambda: 1 // 0}, on_member=broken("member"), log=broken("log")) as (a, _):
            future = a.call_async("b", "fail")
            future.add_done_callback(broken("callback"))
            a.remote("b", "fail").close()  # nobody sees its failure, so it is logged
            for event in called.values():
                self.assertTrue(event.wait(120))
            with self.assertRaises(distag.UserError):
                future.result()
        self.assertEqual({str(each.exc_value) for each in self.unraisable}, {f"broken {name}" for name in called})

    def test_what_nobody_waits_for_is_told_where_no_hook_is_set(self):
        program = HEAD + """
with distag.Worker("a", rank=0, world_size=1, rendezvous="inproc://told", on_member=lambda member: 1 / 0) as a:
    future = a.call_async("a", "neg", distag.ones((1,)))
    done = threading.Event()
    future.add_done_callback(lambda _: (done.set(), undefined_name))
    done.wait(120)
"""
        told = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=120)
        self.assertEqual((told.returncode, told.stdout), (0, ""))
        err = told.stderr
        self.assertIn("Exception ignored in a callback of distag\nTraceback", err)
        self.assertIn("ZeroDivisionError: division by zero", err)
        self.assertIn("NameError: name 'undefined_name' is not defined", err)

    def test_a_shutdown_of_a_host_executor_runs_what_is_open_where_another_thread_polled(self):
        with distag.Worker("a", rank=0, world_size=1, rendezvous="inproc://polled", executor="host",
                           functions={"double": lambda x: 2 * x}) as a:
            other = threading.Thread(target=a.poll)
            other.start()
            other.join()
            future = a.call_async("a", "double", 4)
            self.assertTrue(a.shutdown(timeout=120)["clean"])
            self.assertEqual(future.result(), 8)

    def test_a_keyboard_interrupt_of_a_function_on_a_thread_of_the_pool_is_its_own_failure(self):
        def raises():
            raise KeyboardInterrupt

        with group({"raises": raises}) as (a, _):
            with self.assertRaisesRegex(distag.UserError, "KeyboardInterrupt"):
                a.call("b", "raises")

    def test_a_start_after_the_shutdown_is_refused_also_when_it_was_a_future(self):
        worker = distag.Worker("a", rank=0, world_size=1, rendezvous="inproc://again")
        distag.wait_all([worker.start_async()])
        worker.shutdown(timeout=120)
        with self.assertRaises(distag.UsageError) as raised:
            worker.start()
        self.assertEqual(raised.exception.code, distag.Status.INVALID_STATE)

    def test_a_continuation_that_fails_fails_its_future(self):
        with group({"one": lambda: 1}) as (a, _):
            chained = a.call_async("b", "one").then(lambda future: future.result() // 0)
            with self.assertRaisesRegex(distag.UserError, "ZeroDivisionError"):
                chained.result()

    def test_hooks_and_ops_fail_their_pass(self):
        def broken(gradient):
            raise ValueError("broken hook")

        x = distag.tensor([1.0], requires_grad=True)
        x.add_hook(broken)
        with distag.Context() as context, self.assertRaisesRegex(distag.UserError, "broken hook"):
            context.backward((x * 2).sum())

    def test_a_distag_error_passes_through_functions_with_code_and_rank(self):
        def ask():
            return distag.current_call().worker.call("a", "nothing")

        with group([ask]) as (a, _):
            with self.assertRaises(distag.UsageError) as raised:
                a.call("b", "ask")
            self.assertEqual(raised.exception.code, distag.Status.NOT_FOUND)

    def test_a_call_is_over_when_its_function_has_returned(self):
        kept = []
        with group({"keep": lambda: kept.append(distag.current_call())}) as (a, _):
            a.call("b", "keep")
            with self.assertRaises(distag.ClosedError):
                kept[0].caller

    def test_a_function_cannot_wait_for_its_own_worker_to_end(self):
        with group({"end": lambda: distag.current_call().worker.shutdown()}) as (a, _):
            with self.assertRaises(distag.UsageError) as raised:
                a.call("b", "end")
            self.assertEqual(raised.exception.code, distag.Status.INVALID_STATE)


class Collectors(unittest.TestCase):
    def test_a_worker_that_was_forgotten_is_told_and_leaves(self):
        a = distag.Worker("a", rank=0, world_size=1, rendezvous="inproc://forgotten", functions={}).start()
        cycle = [a]
        cycle.append(cycle)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del a, cycle
            gc.collect()
        self.assertEqual([each.category for each in caught], [ResourceWarning])
        self.assertIn("worker a was not shut down", str(caught[0].message))

    def test_a_worker_that_was_shut_down_by_a_future_is_let_go(self):
        known = len(_life.live)
        workers = [distag.Worker(name, rank=rank, world_size=2, rendezvous="inproc://let-go", functions={})
                   for rank, name in enumerate("ab")]
        distag.wait_all([each.start_async() for each in workers])
        self.assertEqual(len(_life.live), known + 2)
        ends = [each.shutdown_async(120) for each in workers]
        self.assertEqual([each["clean"] for each in distag.wait_all(ends)], [True, True])
        self.assertEqual(len(_life.live), known)
        workers.clear()  # and nothing warns
        self.assertEqual([each.result()["clean"] for each in ends], [True, True])
        one = distag.Worker("one", rank=0, world_size=1, rendezvous="inproc://unread", functions={}).start()
        end = one.shutdown_async(120)
        while not end.done():
            pass
        del one  # though nobody has read its report
        self.assertEqual(len(_life.live), known)

    def test_a_wrong_timeout_changes_nothing(self):
        a, b = (distag.Worker(name, rank=rank, world_size=2, rendezvous="inproc://wrong-timeout", functions={},
                              executor="host") for rank, name in enumerate("ab"))
        for wrong in ("soon", -1, float("nan")):
            for call in (a.start, a.start_async, a.shutdown, a.shutdown_async):
                with self.assertRaisesRegex(distag.UsageError, "a duration is a number of seconds"):
                    call(wrong)
        a.start_async(120)
        for wrong in ("soon", -1, float("nan")):
            for call in (a.start_async, a.shutdown, a.shutdown_async):
                with self.assertRaisesRegex(distag.UsageError, "a duration is a number of seconds"):
                    call(wrong)
        b.start_async(120)
        with self.assertRaisesRegex(distag.UsageError, "a duration is a number of seconds"):
            a.start("soon")
        for each in (a, b):
            self.assertIs(each.start(), each)  # waits for the start that has begun
        others = []
        known = _interrupts.HostExecutor._pollers
        before = {id(each._h): known[id(each._h)] for each in (a, b)}

        def ask_wrong():
            for call in (a.poll, a.shutdown):
                try:
                    call(0, "soon") if call == a.poll else call("soon")
                except distag.UsageError:
                    others.append(known[id(a._h)])

        thread = threading.Thread(target=ask_wrong)
        thread.start()
        thread.join()
        self.assertEqual(others, [before[id(a._h)]] * 2)  # this thread still polls
        ends = [each.shutdown_async(120) for each in (a, b)]
        self.assertEqual([end["clean"] for end in distag.wait_all(ends)], [True, True])

    def test_threads_close_what_others_use(self):
        tensors = [distag.ones((8,)) for _ in range(50)]
        stop = threading.Event()

        def replace():
            while not stop.is_set():
                for index in range(len(tensors)):
                    old, tensors[index] = tensors[index], distag.ones((8,))
                    old.close()

        closer = threading.Thread(target=replace)
        closer.start()
        seen = 0
        try:
            for index in range(4000):
                try:
                    seen += (tensors[index % 50] + tensors[(index + 1) % 50]).size
                except distag.ClosedError:
                    pass
        finally:
            stop.set()
            closer.join()
        self.assertGreater(seen, 0)

    def test_a_tensor_that_borrows_frees_its_array(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("without NumPy there is no array to borrow")
        array = numpy.arange(6.0)
        borrowed = distag.from_numpy(array)
        self.assertFalse(array.flags.writeable)
        view = borrowed[1:3]
        del borrowed
        self.assertFalse(array.flags.writeable)
        self.assertEqual(view.tolist(), [1.0, 2.0])
        del view
        self.assertTrue(array.flags.writeable)

    def test_an_array_that_is_borrowed_twice_is_locked_until_both_are_gone(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("without NumPy there is no array to borrow")
        array = numpy.arange(6.0)
        for order in ((0, 1), (1, 0)):
            borrowed = [distag.from_numpy(array), distag.from_numpy(array)]
            borrowed[order[0]].close()
            self.assertFalse(array.flags.writeable)
            borrowed[order[1]].close()
            self.assertTrue(array.flags.writeable)
        array.flags.writeable = False
        distag.from_numpy(array).close()
        self.assertFalse(array.flags.writeable)

    def test_a_view_that_is_borrowed_before_its_array_is_given_back_quietly(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("without NumPy there is no array to borrow")
        unraisable = []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = unraisable.append
        array = numpy.arange(6.0)
        part, whole = distag.from_numpy(array[:2]), distag.from_numpy(array)
        part.close()
        self.assertFalse(array.flags.writeable)
        whole.close()
        self.assertTrue(array.flags.writeable)
        self.assertEqual(unraisable, [])

    def test_a_slice_that_is_borrowed_locks_what_it_is_a_slice_of(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("without NumPy there is no array to borrow")
        array = numpy.arange(6.0)
        rows = array.reshape(2, 3)
        part = rows[1]
        with distag.from_numpy(part) as borrowed:
            for locked in (array, part, array[4:], rows[1][:1].base):
                with self.assertRaises(ValueError):
                    locked[0] = 9
            self.assertEqual(borrowed.tolist(), [3.0, 4.0, 5.0])
            other = distag.from_numpy(array[:2])
        self.assertFalse(array.flags.writeable)
        again = distag.from_numpy(part)
        other.close()
        self.assertFalse(array.flags.writeable or part.flags.writeable)
        again.close()
        array[3] = 7
        part[1] = 8
        self.assertEqual(array.tolist(), [0, 1, 2, 7, 8, 5])

    def test_a_slice_of_memory_that_nobody_may_write_stays_so(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("without NumPy there is no array to borrow")
        of_bytes = numpy.frombuffer(bytes(16), "float64")
        distag.from_numpy(of_bytes[1:]).close()
        self.assertFalse(of_bytes.flags.writeable)
        of_bytearray = numpy.frombuffer(bytearray(16), "float64")
        borrowed = distag.from_numpy(of_bytearray[1:])
        self.assertFalse(of_bytearray.flags.writeable)
        borrowed.close()
        self.assertTrue(of_bytearray.flags.writeable)

    def test_leaving_with_a_borrowed_array_is_quiet(self):
        program = """
try:
    import numpy
except ImportError:
    numpy = None
import distag
kept = numpy and distag.from_numpy(numpy.arange(6.0))
"""
        done = subprocess.run([sys.executable, "-B", "-c", program], text=True, stderr=subprocess.PIPE, timeout=240)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_nothing_is_kept_for_callbacks_that_were_refused(self):
        gc.collect()
        before = _callbacks.count()
        with self.assertRaises(distag.UsageError):
            distag.tensor([1.0]).add_hook(print)
        with group({"one": lambda: 1}) as (a, _):
            with self.assertRaises(distag.UsageError):
                a.register(print, "one")
        gc.collect()
        self.assertLessEqual(_callbacks.count(), before)


def square_in_a_new_worker(number):
    options = {"rendezvous": "inproc://child", "functions": {"square": lambda x: x * x}}
    with distag.Worker("w", rank=0, world_size=1, **options) as worker:
        return worker.call("w", "square", number)


class Processes(unittest.TestCase):
    def test_children_of_multiprocessing_make_their_own_workers(self):
        with group({"one": lambda: 1}) as (a, _):
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    self.assertEqual(pool.apply_async(square_in_a_new_worker, (7,)).get(120), 49)
            self.assertEqual(a.call("b", "one"), 1)

    def test_objects_that_a_parent_froze_are_closed_in_its_child(self):
        x = distag.tensor([1.0])
        gc.freeze()
        self.addCleanup(gc.unfreeze)
        child = os.fork()
        if child == 0:
            os._exit(0 if x.is_closed else 1)
        self.assertEqual(wait_for_child(child), 0)
        self.assertEqual(x.tolist(), [1.0])

    def test_leaving_without_a_shutdown_is_quiet(self):
        for end in ("", "raise SystemExit(3)", "threading.Thread(target=in_thread, daemon=True).start()"):
            done = subprocess.run([sys.executable, "-B", "-c", HEAD + "a, b = pair()\n" + end], text=True, timeout=240,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stderr), (3 if "3" in end else 0, ""), end)

    def test_a_function_that_never_ends_is_left_behind(self):
        program = HEAD + """
@distag.function
def never():
    print("running", flush=True)
    threading.Event().wait()
a, b = pair()
future = a.call_async("b", "never", timeout=distag.FOREVER)
while b.stats()["calls_served"] + b.stats()["calls_open"] == 0:
    threading.Event().wait(0.005)
"""
        done = subprocess.run([sys.executable, "-B", "-c", program], text=True, stderr=subprocess.PIPE, timeout=240,
                              stdout=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_workers_that_were_forgotten_end_before_the_interpreter_does(self):
        program = HEAD + """
import warnings
warnings.simplefilter("ignore")
@distag.function
def short():
    threading.Event().wait(0.002)
ab = pair()
futures = [ab[0].call_async("b", "short") for _ in range(500)]
for future in futures:
    future.add_done_callback(lambda done: None)
del ab, future
"""
        for _ in range(3):
            done = subprocess.run([sys.executable, "-B", "-c", program], text=True, stderr=subprocess.PIPE, timeout=240)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_leaving_with_the_host_executor_and_calls_open(self):
        program = """
import distag
ab = [distag.Worker(name, rank=rank, world_size=2, rendezvous="inproc://bad", executor="host",
                    functions={"double": lambda x: 2 * x}) for rank, name in enumerate("ab")]
distag.wait_all([worker.start_async(120) for worker in ab])
futures = [ab[0].call_async("b", "double", each) for each in range(1000)]
for future in futures:
    future.add_done_callback(print)
assert futures[0].result() == 0
"""
        done = subprocess.run([sys.executable, "-B", "-c", program], text=True, stderr=subprocess.PIPE, timeout=240,
                              stdout=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_child_that_leaves_as_python_does_ends_well(self):
        program = HEAD + """
import os, signal
a, b = pair()
x = distag.tensor([1.0])
view = a.remote("b", "wait_long")
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    view.close()
else:
    signal.alarm(200)
"""
        done = subprocess.run([sys.executable, "-B", "-c", program], text=True, stderr=subprocess.PIPE, timeout=240,
                              stdout=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_an_older_library_is_refused_naming_both_versions(self):
        needed, _raw.API_SIZE = _raw.API_SIZE, 10**6
        try:
            with self.assertRaisesRegex(ImportError, f"version {_raw.VERSION}, and this package needs version"):
                _library.load_checked()
        finally:
            _raw.API_SIZE = needed

    def test_a_library_that_is_not_there_is_named(self):
        done = subprocess.run([sys.executable, "-B", "-c", "import distag"], stderr=subprocess.PIPE, text=True,
                              timeout=240,
                              env=dict(os.environ, DISTAG_LIBRARY="/nowhere/libdistag.so"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/libdistag.so", done.stderr)


if __name__ == "__main__":
    unittest.main()
