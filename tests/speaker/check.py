"""A speaker made from schemas/ alone and workers of distag in one group. usage: check.py FLATC SCHEMAS [TEST]..."""
import os
import socket
import sys
import tempfile
import unittest
import unittest.mock

try:
    import wire
    import zmq
except ImportError as missing:
    sys.exit(f"{missing}: scripts/setup.sh installs python3-zmq and python3-flatbuffers")

import distag

KEY = "a key of a group, of 32 characters or more"
PROTOCOL = 2


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def square():
    def forward(x):
        return x._replace(numbers=[each * each for each in x.numbers])

    def backward(values, gradient):
        x = values[0].numbers
        return [gradient._replace(numbers=[2 * a * b for a, b in zip(x, gradient.numbers)])], {}

    return Function(forward, backward)


def scale():
    """y = 3 x, where the 3 is a leaf of the speaker."""
    def backward(values, gradient):
        weight = sum(a * b for a, b in zip(values[0].numbers, gradient.numbers))
        return [gradient._replace(numbers=[3 * each for each in gradient.numbers])], {"weight": wire.floats(weight)}

    return Function(lambda x: x._replace(numbers=[3 * each for each in x.numbers]), backward)


class Group:
    """Workers of distag of rank 0 and up, and a speaker of the last rank."""

    def __init__(self, kind=None, workers=1, functions=None, keys=None, lease=5.0, world_size=None, key=KEY,
                 name="speaker", job="speech", protocol=PROTOCOL, joins=True):
        self.kind, self.functions, self.keys, self.lease = kind or Speaker, functions, keys, lease
        self.key, self.job, self.protocol = key, job, protocol
        self.size = world_size or workers + 1
        self.rendezvous = free_address()
        self.log = []
        self.failed = []
        self.workers = []
        self.speaker = None
        starting = [self.add_worker(rank).start_async(120) for rank in range(workers)]
        self.speak(name, workers if self.size > 0 else -1)
        if joins:
            self.until(lambda: self.failures(starting) or self.speaker.has_joined() and
                       all(each.done() for each in starting))
            self.failed = self.failures(starting)
            self.peer = None if self.failed else self.speaker.peer("worker0")

    @staticmethod
    def failures(futures):
        return [each.exception() for each in futures if each.done() and each.exception()]

    def add_worker(self, rank):
        self.workers.append(distag.Worker(
            f"worker{rank}", rank=rank, world_size=self.size, job="speech", rendezvous=self.rendezvous,
            bind="tcp://127.0.0.1:0", lease=self.lease, group_key=None if self.keys else KEY, functions=self.functions,
            log=lambda level, text: self.log.append(text)))
        return self.workers[-1]

    @property
    def worker(self):
        return self.workers[0]

    def speak(self, name, rank):
        own = self.keys["speaker"] if self.keys else wire.group_keys(self.key)
        public = {each: pair[0] for each, pair in self.keys.items()}.get if self.keys else lambda name: own[0]
        self.speaker = self.kind(name, rank, own, public, job=self.job, lease=self.lease,
                                 names=list(self.keys or [""]))
        self.speaker.functions.update(square=square(), scale=scale(), echo=Function(lambda *values: list(values)))
        self.speaker.join(self.rendezvous, self.size, protocol=self.protocol)

    def until(self, condition):
        try:
            self.speaker.until(condition)
        except TimeoutError as failure:
            raise TimeoutError(f"{failure} {self.log}") from None

    def wait(self, future):
        """The result of a future of distag, while the speaker serves."""
        self.until(future.done)
        return future.result()

    def ask(self, function, *args, peer=None):
        """The result of a call of the speaker."""
        outcome = self.speaker.call(peer or self.peer, function, args)
        self.until(lambda: outcome.done)
        return outcome.get()

    def ask_within(self, context, function, args, leaves):
        outcome = self.speaker.call(self.peer, function, args, context, leaves)
        self.until(lambda: outcome.done)
        return outcome

    def kinds(self):
        """Of the messages that the speaker took since it was asked last."""
        kinds = [each for _, each in self.speaker.log if each not in ("Ping", "Credit")]
        self.speaker.log.clear()
        return kinds

    def shut_down(self):
        ending = [worker.shutdown_async(20) for worker in self.workers]
        self.speaker.shut_down()
        self.until(lambda: self.speaker.is_gone() and all(each.done() for each in ending))
        return [each.result()["clean"] for each in ending]

    def close(self):
        self.speaker.close()
        for worker in self.workers:
            worker.close()


class Case(unittest.TestCase):
    def group(self, *arguments, **options):
        group = Group(*arguments, **options)
        self.addCleanup(group.close)
        if group.failed and "in use" in str(group.failed[0]):  # somebody took the port that was free
            return self.group(*arguments, **options)
        self.assertEqual(group.failed, [])
        return group


class Calls(Case):
    def test_calls_and_is_called(self):
        group = self.group(functions={"triple": lambda x: x * 3})
        self.assertEqual(group.ask("mul", wire.floats(1, 2, 3), wire.floats(4, 5, 6)), wire.floats(4, 10, 18))
        self.assertEqual(group.ask("triple", wire.floats(1, 2)), wire.floats(3, 6))
        values = [None, True, 7, 2.5, "text", b"bytes", [1, 2], [1, "two"], {"a": 1.5, "b": None}]
        self.assertEqual(group.wait(group.worker.call_async("speaker", "echo", *values)), values)
        self.assertEqual(group.wait(group.worker.call_async("speaker", "square", distag.tensor([3.0]))).tolist(), [9.0])
        self.assertEqual(group.shut_down(), [True])

    def test_large_tensors_go_in_pieces(self):
        group = self.group(functions={"negative": lambda x: -x})
        large = wire.floats(*map(float, range(300000)))
        self.assertEqual(group.ask("negative", large).numbers[-1], -299999)
        self.assertIn("Chunk", group.kinds())
        self.assertEqual(group.shut_down(), [True])

    def test_small_pieces_may_be_frames(self):
        group = self.group()
        for small in (0, 60000):
            with unittest.mock.patch.object(wire, "SMALL", small):
                self.assertEqual(group.ask("neg", wire.floats(*[1.5] * 2000)), wire.floats(*[-1.5] * 2000))

    def test_failures_have_their_status_and_rank(self):
        group = self.group()
        with self.assertRaises(Failed) as failed:
            group.ask("nothing")
        self.assertEqual((failed.exception.error.status, failed.exception.error.originRank), (12, 0))
        with self.assertRaises(distag.DistagError) as failed:
            group.wait(group.worker.call_async("speaker", "nothing"))
        self.assertEqual((failed.exception.code, failed.exception.origin_rank), (12, 1))


class References(Case):
    def test_holds_a_value_of_a_worker(self):
        group = self.group()
        held = []
        group.speaker.functions["hold"] = Function(held.append)
        group.wait(group.worker.call_async("speaker", "hold", group.worker.rref(distag.tensor([1.0, 2.0]))))
        self.assertEqual((held[0].owner, held[0].owner_rank), (group.peer.incarnation, 0))
        self.assertEqual(group.ask("distag.fetch", held[0]._replace(fork=None)), wire.floats(1, 2))
        group.speaker.drop(held[0])
        with self.assertRaises(Failed):
            group.ask("distag.fetch", held[0]._replace(fork=None))
        self.assertEqual(group.shut_down(), [True])

    def test_leaves_a_result_where_it_was_made(self):
        group = self.group()
        name = group.speaker.new_id()
        outcome = group.speaker.call(group.peer, "neg", [wire.floats(1, 2)], keep=name)
        kept = Reference(name, group.peer.incarnation, 0, None)
        self.assertEqual(group.ask("distag.fetch", kept), wire.floats(-1, -2))
        self.assertEqual((outcome.done, outcome.get()), (True, None))
        group.speaker.drop(kept._replace(fork=name))
        self.assertEqual(group.shut_down(), [True])

    def test_passed_on_by_another_user(self):
        def pass_on(rref):
            group.workers[1].call("speaker", "hold", rref)

        group = self.group(workers=2, functions={"pass_on": pass_on})
        held = []
        group.speaker.functions["hold"] = Function(held.append)
        group.wait(group.worker.call_async("worker1", "pass_on", group.worker.rref(distag.tensor([1.0]))))
        self.assertEqual((held[0].owner, held[0].fork.maker),
                         (group.peer.incarnation, group.speaker.peer("worker1").incarnation))
        self.assertEqual(group.ask("distag.fetch", held[0]._replace(fork=None)), wire.floats(1))
        group.speaker.drop(held[0])
        self.assertEqual(group.shut_down(), [True, True])

    def test_its_own_is_passed_on(self):
        group = self.group(workers=2, functions={"read": lambda rref: rref.fetch()})
        group.speaker.functions["share"] = Function(lambda: group.speaker.share(wire.floats(5)))
        rref = group.wait(group.worker.call_async("speaker", "share"))
        self.assertEqual(group.wait(group.worker.call_async("worker1", "read", rref)).tolist(), [5.0])
        rref.close()
        group.until(lambda: not group.speaker.shared)
        self.assertIn(("worker1", "Fork"), group.speaker.log)
        self.assertEqual(group.shut_down(), [True, True])

    def test_shares_a_value(self):
        group = self.group()
        group.speaker.functions["share"] = Function(lambda: group.speaker.share(wire.floats(5)))
        rref = group.wait(group.worker.call_async("speaker", "share"))
        self.assertEqual(group.wait(rref.fetch_async()).tolist(), [5.0])
        rref.close()
        group.until(lambda: not group.speaker.shared)
        self.assertEqual(group.shut_down(), [True])


class Passes(Case):
    """The gradients of distag's passes go through the speaker, and its own through distag."""

    def fourth_power(self, group):
        """d/dx sum(4 x^4): through the speaker twice, and through distag between."""
        with group.worker.context() as context:
            x = distag.tensor([1.0, 2.0, 3.0], requires_grad=True)
            y = group.wait(group.worker.call_async("speaker", "square", x, context=context))
            y = group.wait(group.worker.call_async("speaker", "square", y * 2, context=context))
            group.kinds()
            group.wait(context.backward_async(y.sum()))
            self.assertEqual(context.gradient(x).tolist(), [16.0, 128.0, 432.0])
            group.until(lambda: not group.speaker.passes)  # VERDICT
        return group.kinds()

    def test_planned_by_the_records_of_the_speaker(self):
        group = self.group()
        self.assertEqual(self.fourth_power(group)[:4], ["Expect", "Grad", "Grad", "Verdict"])
        self.assertEqual(group.shut_down(), [True])

    def test_searched_where_it_tells_no_records(self):
        group = self.group()
        group.speaker.tells_lineage = False
        self.assertEqual(self.fourth_power(group)[:7],
                         ["Discover", "Discover", "Discovered", "Discovered", "Grad", "Grad", "Verdict"])
        self.assertEqual(group.shut_down(), [True])

    def test_searched_after_a_false_plan(self):
        class Liar(Speaker):
            def record(self, *arguments):
                recording = super().record(*arguments)
                for link in recording.lineage or []:
                    link.on, link.onSlot = NONE, 0  # depends on nothing
                return recording

        group = self.group(Liar)
        kinds = self.fourth_power(group)
        self.assertEqual((kinds[0], kinds.count("Discover")), ("Expect", 2))

    def test_its_own_leaf_gets_a_gradient_at_the_verdict(self):
        group = self.group()
        with group.worker.context() as context:
            x = distag.tensor([1.0, 2.0], requires_grad=True)
            y = group.wait(group.worker.call_async("speaker", "scale", x, context=context))
            group.wait(context.backward_async(y.sum()))
            self.assertEqual(context.gradient(x).tolist(), [3.0, 3.0])
            own = next(iter(group.speaker.contexts.values()))
            group.until(lambda: own.gradients)
            self.assertEqual(own.gradients, {"weight": wire.floats(3.0)})
        group.until(lambda: not group.speaker.contexts)  # RELEASE
        self.assertEqual(group.shut_down(), [True])

    def test_fast(self):
        group = self.group()
        with group.worker.context() as context:
            x = distag.tensor([1.0, 2.0], requires_grad=True)
            y = group.wait(group.worker.call_async("speaker", "square", x, context=context))
            y = group.wait(group.worker.call_async("speaker", "scale", y, context=context))
            group.wait(context.backward_async(y.sum(), mode="fast"))
            self.assertEqual(context.gradient(x).tolist(), [6.0, 12.0])
            self.assertIn("Begin", group.kinds())
            unused = group.wait(group.worker.call_async("speaker", "square", x, context=context))
            y = group.wait(group.worker.call_async("speaker", "square", x, context=context))
            with self.assertRaises(distag.DistagError) as failed:
                group.wait(context.backward_async(y.sum(), mode="fast"))
            self.assertEqual(failed.exception.code, 64)  # UNREACHED_SEND
            self.assertEqual(unused.tolist(), [1.0, 4.0])
        self.assertEqual(group.shut_down(), [True])

    def test_done_may_go_by_itself(self):
        class Separate(Speaker):
            def rides(self, run, peer, is_last):
                return False

        self.assertEqual(self.fourth_power(self.group(Separate))[0], "Expect")

    def test_begins_passes(self):
        group = self.group()
        context = group.speaker.new_context()
        for planned in (False, True):
            x = group.ask_within(context, "mul", [wire.floats(1, 2), wire.floats(4, 5)], [None, "x"])
            run = group.speaker.backward(x, wire.floats(1, 10), planned)
            group.until(lambda: run.outcome)
            self.assertEqual((run.outcome, context.gradients.pop("x")), ("commit", wire.floats(1, 20)))
            kinds = group.kinds()
            self.assertEqual(kinds, ["Reply", "Grad"] if planned else ["Reply", "Discover", "Discovered", "Grad"])
        group.speaker.release(context)
        self.assertEqual(group.shut_down(), [True])

    def test_begins_a_pass_through_itself(self):
        """distag's function calls the speaker in turn: d/dx (2 x)^2."""
        def through(x):
            return group.worker.call("speaker", "square", x * 2)

        group = self.group(functions={"through": through})
        context = group.speaker.new_context()
        for planned in (False, True):
            x = group.ask_within(context, "through", [wire.floats(1, 2)], ["x"])
            run = group.speaker.backward(x, wire.floats(1, 1), planned)
            group.until(lambda: run.outcome)
            self.assertEqual((run.outcome, context.gradients.pop("x")), ("commit", wire.floats(8, 16)))

    def test_an_aborted_pass_leaves_nothing(self):
        group = self.group()
        with group.worker.context() as context:
            x = distag.tensor([1.0], requires_grad=True)
            y = group.wait(group.worker.call_async("speaker", "scale", x, context=context))
            own = next(iter(group.speaker.contexts.values()))
            own.sends.clear()
            with self.assertRaises(distag.DistagError) as failed:
                group.wait(context.backward_async(y.sum()))
            self.assertEqual(failed.exception.code, 63)  # GRAPH_FREED
            self.assertEqual(own.gradients, {})

    def test_a_false_tally_ends_at_the_deadline(self):
        class Liar(Speaker):
            def send_gradient(self, run, *arguments):
                run.received += 1
                super().send_gradient(run, *arguments)

        group = self.group(Liar)
        with group.worker.context() as context:
            x = distag.tensor([1.0], requires_grad=True)
            y = group.wait(group.worker.call_async("speaker", "square", x, context=context))
            with self.assertRaises(distag.DistagError) as failed:
                group.wait(context.backward_async(y.sum(), timeout=3))
            self.assertEqual(failed.exception.code, 50)  # DEADLINE
            self.assertIn("2 gradients were sent and 3 received", failed.exception.message)

    def test_reached_through_another_worker(self):
        """worker0 calls worker1, and that the speaker: d/dx (3 x)^2."""
        def through(x):
            return group.workers[1].call("speaker", "square", x * 3)

        for tells, before in ((True, "Expect"), (False, "Discover")):
            group = self.group(workers=2, functions={"through": through})
            group.speaker.tells_lineage = tells
            with group.worker.context() as context:
                x = distag.tensor([1.0, 2.0], requires_grad=True)
                y = group.wait(group.worker.call_async("worker1", "through", x, context=context))
                group.wait(context.backward_async(y.sum()))
                self.assertEqual(context.gradient(x).tolist(), [18.0, 36.0])
            self.assertIn(before, group.kinds())
            self.assertEqual(group.shut_down(), [True, True])


class BadDays(Case):
    def counting(self, kind=None, **options):
        """A group whose function numbers its runs."""
        runs = []

        def count():
            runs.append(None)
            return len(runs)

        return self.group(kind, functions={"count": count}, **options), runs

    def test_a_lost_connection_comes_back_and_repeats(self):
        group, runs = self.counting()
        speaker, peer = group.speaker, group.peer
        self.assertEqual(group.ask("count"), 1)
        for turn in range(2, 12):
            outcome = speaker.call(peer, "count", [])
            speaker.dial(peer)  # closes the one that it had
            group.until(lambda: outcome.done)
            self.assertEqual(outcome.get(), turn)
        self.assertEqual(len(runs), 11)
        self.assertEqual(group.shut_down(), [True])

    def test_a_message_twice_is_heard_once(self):
        class Twice(Speaker):
            def transmit(self, *message):
                super().transmit(*message)
                super().transmit(*message)

        group, runs = self.counting(Twice)
        self.assertEqual([group.ask("count") for _ in range(3)], [1, 2, 3])
        self.assertEqual(group.shut_down(), [True])

    def damaged(self, spoil):
        """Spoils every third message: the worker refuses that connection, and the speaker repeats."""
        class Spoiling(Speaker):
            times = redials = 0

            def transmit(self, peer, number, frames):
                self.times += 1
                if self.times % 3 == 0:
                    return spoil(self, peer, number, frames)
                return super().transmit(peer, number, frames)

            def dial(self, peer):
                self.redials += 1
                super().dial(peer)

        group, runs = self.counting(Spoiling)
        self.assertEqual([group.ask("count") for _ in range(5)], [1, 2, 3, 4, 5])
        self.assertGreater(group.speaker.redials, 2)
        self.assertEqual((len(runs), group.peer.lost), (5, None))
        group.speaker.times = -1000
        self.assertEqual(group.shut_down(), [True])

    def test_a_changed_bit_is_noticed(self):
        def spoil(speaker, peer, number, frames):
            frames = wire.place(frames, number, peer.received)
            peer.line.send([frames[0][:-1] + bytes([frames[0][-1] ^ 1]), *frames[1:]])

        self.damaged(spoil)

    def test_a_number_left_out_is_noticed(self):
        def spoil(speaker, peer, number, frames):
            peer.line.send(wire.place(frames, number + 1, peer.received))

        self.damaged(spoil)

    def test_what_the_speaker_did_not_take_is_repeated(self):
        class Deaf(Speaker):
            heard = deaf = 0

            def receive(self):
                self.heard += 1
                if self.heard % 5:
                    return super().receive()
                self.deaf += 1
                return self.refuse(self.listener.recv_multipart()[0], "Damaged", "it did not listen")

        group, runs = self.counting(Deaf)
        for number in range(20):
            self.assertEqual(group.wait(group.worker.call_async("speaker", "echo", number)), [number])
        self.assertGreater(group.speaker.deaf, 3)
        self.assertEqual(group.shut_down(), [True])

    def test_silence_of_both_is_bridged_by_pings(self):
        group, _ = self.counting(lease=4.0)
        self.assertEqual(group.ask("count"), 1)
        group.speaker.log.clear()
        group.until(lambda: group.speaker.log.count(("worker0", "Ping")) >= 8)  # two leases
        self.assertEqual((group.ask("count"), group.peer.lost), (2, None))
        self.assertEqual(group.shut_down(), [True])

    def test_a_silent_speaker_is_lost_and_told_so(self):
        group, _ = self.counting(lease=4.0)
        self.assertEqual(group.ask("count"), 1)
        with self.assertRaises(distag.DistagError) as failed:
            group.worker.call("speaker", "echo", timeout=240)  # nobody pumps
        self.assertEqual(failed.exception.code, 40)  # DISCONNECTED
        group.until(lambda: group.peer.lost)
        self.assertIn("it has acknowledged nothing for", group.peer.lost)  # REFUSE(Fenced)

    def test_a_worker_that_leaves_is_no_loss(self):
        group, _ = self.counting()
        self.assertEqual(group.ask("count"), 1)
        ending = group.worker.shutdown_async(0)
        group.until(lambda: ending.done() and group.peer.left)
        self.assertIsNone(group.peer.lost)

    def test_a_speaker_that_leaves_is_no_loss(self):
        group, _ = self.counting()
        self.assertEqual(group.ask("count"), 1)
        group.speaker.leave()
        group.until(group.speaker.is_gone)
        with self.assertRaises(distag.DistagError) as failed:
            group.worker.call("speaker", "echo", timeout=240)
        self.assertEqual(failed.exception.code, 40)
        self.assertIn("left", failed.exception.message)


class Groups(Case):
    def refusal(self, **options):
        group = self.group(joins=False, **options)
        group.until(lambda: group.speaker.refused)
        return group.speaker.refused

    def test_an_open_group(self):
        group = self.group(world_size=-1)
        self.assertEqual((group.speaker.rank, group.speaker.generation), (1, 1))
        self.assertEqual(group.ask("neg", wire.floats(1)), wire.floats(-1))
        self.assertEqual(group.wait(group.worker.call_async("speaker", "echo", 1)), [1])
        late = group.add_worker(2)
        group.wait(late.start_async(120))
        self.assertEqual(group.wait(late.call_async("speaker", "echo", 2)), [2])
        self.assertEqual(group.ask("neg", wire.floats(2), peer=group.speaker.peer("worker2")), wire.floats(-2))
        group.speaker.leave()
        group.until(group.speaker.is_gone)

    def test_comes_back_under_its_name(self):
        group = self.group()
        self.assertEqual(group.ask("neg", wire.floats(1)), wire.floats(-1))
        old = group.speaker
        old.close()
        group.speak("speaker", 1)
        group.until(group.speaker.has_joined)
        self.assertEqual((group.speaker.generation, group.speaker.incarnation != old.incarnation), (2, True))
        group.peer = group.speaker.peer("worker0")
        self.assertEqual(group.ask("neg", wire.floats(1)), wire.floats(-1))
        self.assertEqual(group.wait(group.worker.call_async("speaker", "echo", 1)), [1])
        self.assertEqual(group.shut_down(), [True])

    def test_gathers_values(self):
        group = self.group(workers=2)
        for turn in range(3):
            theirs = [worker.all_gather_async(f"{turn} of {rank}") for rank, worker in enumerate(group.workers)]
            outcome = group.speaker.gather(f"{turn} of 2", [0, 1, 2])
            values = [f"{turn} of {rank}" for rank in range(3)]
            self.assertEqual([group.wait(each) for each in theirs], [values, values])
            group.until(lambda: outcome.done)
            self.assertEqual((outcome.get(), group.speaker.gathered), (None, values))
        self.assertEqual(group.shut_down(), [True, True])

    def test_another_job_is_refused(self):
        refused = self.refusal(job="song")
        self.assertEqual(refused.status, 13)  # DENIED

    def test_another_protocol_is_refused(self):
        refused = self.refusal(protocol=1)
        self.assertEqual(refused.status, 61)  # PROTOCOL

    def test_another_group_key_is_not_heard(self):
        group = self.group(joins=False, key=KEY[::-1])
        group.until(lambda: group.speaker.joins > 3 and group.log)
        self.assertEqual((group.speaker.missing, group.speaker.refused), (None, None))
        self.assertIn("it does not know the key of the group", group.log[0])

    def keys(self):
        """A key for each worker, as distag reads them; those of the speaker beside."""
        names = ("worker0", "speaker")
        pairs = dict(zip(names, (zmq.curve_keypair() for _ in names)))
        folder = self.enterContext(tempfile.TemporaryDirectory())
        for name, text in (("list", "".join(f"{name} {pairs[name][0].decode()}\n" for name in names)),
                           ("secret", pairs["worker0"][1].decode())):
            with open(os.open(os.path.join(folder, name), os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(text)
        paths = {f"DISTAG_{what}_FILE": os.path.join(folder, name)
                 for what, name in (("PEER_KEYS", "list"), ("SECRET_KEY", "secret"))}
        self.enterContext(unittest.mock.patch.dict(os.environ, paths))
        return pairs

    def test_a_key_for_each_worker(self):
        group = self.group(keys=self.keys())
        self.assertEqual(group.ask("neg", wire.floats(1)), wire.floats(-1))
        self.assertEqual(group.wait(group.worker.call_async("speaker", "echo", 1)), [1])
        self.assertEqual(group.shut_down(), [True])

    def test_a_name_that_is_not_of_the_key_is_refused(self):
        refused = self.refusal(keys=self.keys(), name="other")
        self.assertEqual(refused.status, 13)


if __name__ == "__main__":
    if not zmq.has("curve"):
        sys.exit("this libzmq has no CURVE")
    with tempfile.TemporaryDirectory() as generated:
        wire.generate(sys.argv[1], sys.argv[2], generated)
        from speaker import NONE, Failed, Function, Reference, Speaker
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
