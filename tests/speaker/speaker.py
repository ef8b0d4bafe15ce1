"""A worker that shares nothing with distag but schemas/: calls, answers, and its part of backward passes."""
import random

import wire
from streams import Streams
from wire import Id, Reference, Tensor, kind, new, number_of

INVALID_STATE, NOT_FOUND, REMOTE, GRAPH_FREED = 11, 12, 60, 63  # as in distag.h
NONE = Id(0, 0)


class Failed(Exception):
    """As Error says."""

    def __init__(self, error):
        super().__init__(error.text.decode() if isinstance(error.text, bytes) else error.text)
        self.error = error


class Function:
    """What others may call: forward(*values); with backward(values, gradient) also within a context. That gives the
    gradients of the tensors among the values that require grad, and of this speaker's own leaves by name."""

    def __init__(self, forward, backward=None):
        self.forward, self.backward = forward, backward


class Send:
    """A send node: a pair that this speaker made."""

    def __init__(self, pair, count, back, source=None):
        self.pair, self.count = pair, count  # of its slots
        self.back = back  # of the gradients: those of the source's slots, and those of own leaves by name
        self.source = source  # (pair, peer, count) of the recv that it depends on; None: on leaves alone


class Context:
    def __init__(self, context_id, creator_rank):
        self.id, self.creator_rank = context_id, creator_rank
        self.sends = {}
        self.records = {}  # the (pair, slot) on which each (pair, slot) depends
        self.gradients = {}  # of own leaves, by name

    def learn(self, lineage):
        for link in lineage or []:
            self.records.setdefault((link.pair, link.slot), set()).add((link.on, link.onSlot))


class Outcome:
    """Of a call of this speaker."""

    def __init__(self, peer, context):
        self.peer, self.context = peer, context
        self.done, self.value, self.error = False, None, None
        self.pair, self.count = None, 0

    def get(self):
        if self.error:
            raise Failed(self.error)
        return self.value


class Walk:
    """A DISCOVER of somebody else, answered once those that it caused are."""

    def __init__(self, asker, request):
        self.asker, self.request = asker, request
        self.open, self.found, self.error = set(), set(), None


class Pass:
    def __init__(self, pass_id, context, retain, planned=False, fast=False):
        self.id, self.context, self.retain, self.planned, self.fast = pass_id, context, retain, planned, fast
        self.walks = []
        self.reached = {}  # the bits of each send
        self.early = []  # GRADs before the EXPECT
        self.is_known = not planned  # what is reached
        self.failed = False
        self.run = set()  # sends that have got their gradient
        self.sent = self.received = 0
        self.sent_to = []
        self.staged = {}
        # Of the initiator:
        self.root = None  # (outcome, seed)
        self.tallies = {}  # (sent, received) of each participant, None: not done
        self.outcome = None  # "commit", or the error
        self.replanned = None  # the pass in its place

    def targets(self):
        return sorted(set(self.sent_to)) if self.fast else []


class Speaker(Streams):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.functions = {}
        self.calls = {}
        self.contexts = {}
        self.passes = {}
        self.taken = {}  # costs of the calls of each peer
        self.gather_turn, self.gathered = None, None
        self.shared_maker, self.shared, self.forks = random.randrange(1, 2**64), {}, {}
        self.functions["distag.fetch"] = Function(self.fetch)
        self.functions["distag.all_gather_values"] = Function(self.take_gathered)
        self.tells_lineage = True
        self.log = []  # of what was handled, for people and tests

    def take(self, peer, body, reader):
        self.log.append((peer.name, kind(body)))
        super().take(peer, body, reader)

    def is_idle(self):
        return not self.calls and not self.passes

    # ---- calls ----

    def call(self, peer, function, args, context=None, tracked=(), keep=None):
        """Begins a call. With a context: for each tensor of the arguments the name of this speaker's leaf, or None.
        keep: the id under which the result stays there."""
        writer = wire.Writer()
        tables = [writer.table(value) for value in args]
        body = new("Call", call=self.new_id(), function=function, args=tables, argsType=wire.types_of(tables),
                   cost=sum(map(len, writer.frames)) + len(writer.tail), keep=keep)
        outcome = self.calls[body.call] = Outcome(peer, context)
        if context:
            body.recording = new("Recording", context=context.id, creatorRank=context.creator_rank)
            if any(tracked):
                body.recording.pair, body.recording.tracked = self.new_id(), [bool(leaf) for leaf in tracked]
                leaves = [leaf for leaf in tracked if leaf]
                self.add_send(context, body.recording, lambda gradients: ([], dict(zip(leaves, gradients))))
                self.tell(context, body.recording, [(NONE, 0)])
        self.send(peer, body, writer)
        return outcome

    def on_reply(self, peer, reply, reader):
        outcome = self.calls.pop(reply.call, None)
        if not outcome:
            return  # stale
        outcome.done, outcome.error = True, reply.error
        if not reply.error:
            outcome.value = reader.value(reply.result)
            reader.end()
            self.hold(peer, outcome.value)
        if reply.recording and reply.recording.pair:
            outcome.pair, outcome.count = reply.recording.pair, sum(reply.recording.tracked)
            outcome.context.learn(reply.recording.lineage)

    def on_call(self, peer, call, reader):
        self.taken[peer] = self.taken.get(peer, 0) + call.cost
        function = self.functions.get(call.function.decode())
        recording, answer = call.recording, new("Reply", call=call.call, taken=self.taken[peer])
        writer = wire.Writer()
        try:
            values = reader.values(call.argsType, call.args)
            reader.end()
            for value in values:
                self.hold(peer, value)
            if not function:
                text = f"{self.name} has no function {call.function.decode()}"
                raise Failed(new("Error", status=NOT_FOUND, text=text, originRank=self.rank))
            answer.result = writer.table(function.forward(*values))
        except (Failed, ArithmeticError) as failure:
            writer = wire.Writer()
            answer.result, answer.error = None, getattr(failure, "error", None) or new(
                "Error", status=REMOTE, text=str(failure), originRank=self.rank, mayHaveRun=True)
        if recording:
            answer.recording = self.record(peer, recording, function, values, answer.result)
        answer.resultType = number_of("Value", kind(answer.result)) if answer.result else 0
        self.send(peer, answer, writer)

    def record(self, peer, came, function, values, result):
        """The recording of an answer: a pair of its own where the gradient may come back."""
        context = self.contexts.get(came.context)
        if not context:
            context = self.contexts[came.context] = Context(came.context, came.creatorRank)
            if came.context.maker != peer.incarnation:
                self.send(self.peers[came.context.maker], new("Joined", context=came.context))
        context.learn(came.lineage)
        recording = new("Recording", context=came.context, creatorRank=came.creatorRank)
        if not (came.pair and result and function.backward):
            return recording
        recording.pair, recording.tracked = self.new_id(), [True]
        source = (came.pair, peer, sum(came.tracked))
        self.add_send(context, recording, lambda gradients: function.backward(values, gradients[0]), source)
        self.tell(context, recording, [(came.pair, slot) for slot in range(sum(came.tracked))])
        return recording

    def tell(self, context, recording, behind):
        """The record of a pair all of whose slots depend on the same. The other side has all further ones."""
        lineage = [new("Link", pair=recording.pair, slot=slot, on=on, onSlot=on_slot)
                   for slot in range(sum(recording.tracked)) for on, on_slot in behind]
        context.learn(lineage)
        recording.lineage = lineage if self.tells_lineage else None

    def on_cancel(self, peer, cancel, reader):
        pass  # calls are answered at once here: it came too late

    def on_credit(self, peer, credit, reader):
        pass  # this speaker never has so much under way

    def on_wantcredit(self, peer, want, reader):
        self.send(peer, new("Credit", taken=self.taken.get(peer, 0)))

    def gather(self, value, ranks):
        """Contributes to an all_gather of these ranks, the lowest of which is another's; see gathered."""
        self.gather_turn, self.gathered = random.randrange(2**62), None
        first = next(peer for peer in self.peers.values() if peer.rank == ranks[0])
        return self.call(first, "distag.all_gather", [wire.integers(*ranks), -1, self.gather_turn, value])

    def take_gathered(self, ranks, turns, values):
        place = ranks.numbers.index(self.rank)
        if turns.numbers[place] != self.gather_turn:
            raise Failed(new("Error", status=INVALID_STATE, text="it does not wait for that", originRank=self.rank))
        assert 2 * place + 1 >= len(ranks.numbers), "this speaker passes nothing on"
        self.gathered = values
        return []  # nobody was left out

    # ---- references ----

    def share(self, value):
        """A reference to a value of this speaker; each one that is sent is a fork of its own."""
        reference = Reference(Id(self.shared_maker, len(self.shared) + 1), self.incarnation, self.rank, self.new_id())
        self.shared[reference.value] = value
        self.forks[reference.fork] = reference.value
        return reference

    def fetch(self, reference):
        return self.shared[reference.value]

    def hold(self, peer, value):
        """Tells the owner of a reference that another user has passed on."""
        if isinstance(value, Reference) and value.owner not in (peer.incarnation, self.incarnation):
            self.send(self.peers[value.owner], new("Fork", value=value.value, fork=value.fork))

    def on_fork(self, peer, fork, reader):
        self.forks[fork.fork] = fork.value
        self.send(self.peers[fork.fork.maker], new("Forked", fork=fork.fork, holder=peer.incarnation))

    def on_forked(self, peer, forked, reader):
        pass  # this speaker passes on nothing that it does not own

    def on_seek(self, peer, seek, reader):
        self.send(peer, new("Sought", value=seek.value))  # the call that makes it was numbered before

    def drop(self, reference):
        """Lets go of a value of another."""
        self.send(self.peers[reference.owner], new("Drop", fork=reference.fork))

    def on_drop(self, peer, drop, reader):
        value = self.forks.pop(drop.fork, None)
        if value not in self.forks.values():
            self.shared.pop(value, None)

    # ---- contexts ----

    def new_context(self):
        context = Context(self.new_id(), self.rank)
        self.contexts[context.id] = context
        return context

    def release(self, context):
        del self.contexts[context.id]
        for peer in self.peers.values():
            self.send(peer, new("Release", contexts=[context.id]))

    def add_send(self, context, recording, back, source=None):
        context.sends[recording.pair] = Send(recording.pair, sum(recording.tracked), back, source)

    def on_release(self, peer, release, reader):
        for context in release.contexts:
            self.contexts.pop(context, None)

    def on_joined(self, peer, joined, reader):
        pass

    # ---- passes: what is reached ----

    def reach(self, run, pairs):
        """Notes these pairs, and gives those that are new; KeyError where a send is not here."""
        sends = self.contexts[run.context].sends
        fresh = [each.pair for each in pairs if each.pair not in run.reached]
        for each in pairs:
            bits = run.reached.get(each.pair, [False] * sends[each.pair].count)
            run.reached[each.pair] = [a or b for a, b in zip(bits, each.bits + [False] * len(bits))]
        return [sends[pair] for pair in fresh]

    def on_discover(self, peer, ask, reader):
        run = self.passes.get(ask.pass_)
        if not run:
            run = self.passes[ask.pass_] = Pass(ask.pass_, ask.context, ask.retainGraph)
            if peer.incarnation != ask.pass_.maker:
                self.send(self.peers[ask.pass_.maker], new("Joined", context=ask.context, pass_=ask.pass_))
        walk = Walk(peer, ask.request)
        walk.found.add(self.incarnation)
        run.walks.append(walk)
        try:
            for send in self.reach(run, ask.pairs or []):
                self.ask_behind(run, walk, send)
        except KeyError:
            walk.error = new("Error", status=GRAPH_FREED, text="its graph is gone", originRank=self.rank)
        self.end_walk(run, walk)

    def ask_behind(self, run, walk, send):
        if send.source:
            pair, peer, count = send.source
            request = self.new_id()
            walk.open.add(request)
            self.send(peer, new("Discover", context=run.context, pass_=run.id, request=request, retainGraph=run.retain,
                                pairs=[new("PairBits", pair=pair, bits=[True] * count)]))

    def end_walk(self, run, walk):
        if walk.open:
            return
        run.walks.remove(walk)
        if walk.asker:
            self.send(walk.asker, new("Discovered", context=run.context, pass_=run.id, request=walk.request,
                                      participants=sorted(walk.found), error=walk.error))
        elif walk.error:
            run.tallies = dict.fromkeys(walk.found - {self.incarnation})
            self.finish(run, walk.error)
        else:
            self.begin(run, walk.found - {self.incarnation})

    def on_discovered(self, peer, answer, reader):
        run = self.passes.get(answer.pass_)
        walk = next((walk for walk in run.walks if answer.request in walk.open), None) if run else None
        if walk:
            walk.open.remove(answer.request)
            walk.found.update(answer.participants or [])
            walk.error = walk.error or answer.error
            self.end_walk(run, walk)

    def on_expect(self, peer, expect, reader):
        run = self.passes.setdefault(expect.pass_, Pass(expect.pass_, expect.context, expect.retainGraph, True))
        run.is_known = True
        try:
            sends = self.reach(run, expect.sends or [])
            behind = {(send.source[0], slot) for send in sends if send.source for slot in range(send.source[2])}
            if wire.plan_hash(behind) != expect.check:
                raise KeyError("the plan has other recvs")
        except KeyError as failure:
            return self.say_done(run, new("Error", status=INVALID_STATE, text=str(failure), originRank=self.rank), True)
        for early in run.early:
            self.gradient(run, *early)
        return None

    def on_begin(self, peer, start, reader):
        """FAST: all sends that are here."""
        if start.pass_ in self.passes:
            return
        run = self.passes[start.pass_] = Pass(start.pass_, start.context, start.retainGraph, fast=True)
        context = self.contexts[start.context]
        run.reached = {pair: [True] * send.count for pair, send in context.sends.items()}
        if not run.reached:
            self.say_done(run)

    def on_probe(self, peer, probe, reader):
        run = self.passes.get(probe.pass_) or Pass(None, None, False)
        unreached = [str(pair) for pair in run.reached if pair not in run.run]
        self.send(peer, new("ProbeAnswer", context=probe.context, pass_=probe.pass_, round=probe.round, idle=True,
                            gradsSent=run.sent, gradsReceived=run.received, unreached=unreached, gradsTo=run.targets()))

    # ---- passes: gradients ----

    def on_grad(self, peer, grad, reader):
        gradients = iter(reader.values(grad.gradientsType, grad.gradients))
        gradients = [next(gradients) if live else None for live in grad.live]
        reader.end()
        run = self.passes.get(grad.pass_)
        if not run and grad.fast:
            self.on_begin(peer, grad, reader)
            run = self.passes[grad.pass_]
        if not run and grad.planned:
            run = self.passes[grad.pass_] = Pass(grad.pass_, grad.context, grad.retainGraph, True)
            self.send(self.peers[grad.pass_.maker], new("Joined", context=grad.context, pass_=grad.pass_))
        if not run or run.failed:
            return  # stale
        if run.is_known:
            self.gradient(run, grad.pair, gradients)
        else:
            run.early.append((grad.pair, gradients))
        if grad.done:
            self.tally(run, peer, grad.done.sent, grad.done.received)

    def gradient(self, run, pair, gradients):
        send = self.contexts[run.context].sends[pair]
        run.received += 1
        run.run.add(pair)
        behind, leaves = send.back(gradients)
        for leaf, each in leaves.items():
            run.staged[leaf] = add(run.staged.get(leaf), each)
        is_last = run.run == set(run.reached)
        if send.source:
            self.send_gradient(run, send.source, behind, is_last)
        if is_last and not (send.source and self.rides(run, send.source[1], is_last)):
            self.say_done(run)

    def send_gradient(self, run, source, gradients, is_last=False):
        """With the end of this part on the last one, where that goes to the initiator."""
        pair, peer, count = source
        writer = wire.Writer()
        tables = [writer.table(each) for each in gradients]
        run.sent += 1
        run.sent_to.append(peer.incarnation)
        done = new("Tally", sent=run.sent, received=run.received)
        self.send(peer, new(
            "Grad", context=run.context, pass_=run.id, pair=pair, retainGraph=run.retain, live=[True] * count,
            gradients=tables, gradientsType=wire.types_of(tables), planned=run.planned, fast=run.fast,
            done=done if self.rides(run, peer, is_last) else None), writer)

    def rides(self, run, peer, is_last):
        """Whether a GRAD to peer says DONE as well."""
        return is_last and peer.incarnation == run.id.maker and not run.fast

    def say_done(self, run, error=None, replan=False):
        run.failed = bool(error)
        if run.id.maker == self.incarnation:
            return self.settle(run)
        return self.send(self.peers[run.id.maker], new(
            "Done", context=run.context, pass_=run.id, error=error, gradsSent=run.sent, gradsReceived=run.received,
            gradsTo=run.targets(), replan=replan))

    def on_verdict(self, peer, verdict, reader):
        run = self.passes.pop(verdict.pass_, None)
        if run and verdict.commit:
            self.commit(run)

    def commit(self, run):
        context = self.contexts[run.context]
        for leaf, gradient in run.staged.items():
            context.gradients[leaf] = add(context.gradients.get(leaf), gradient)
        if not run.retain:
            for pair in run.reached:
                del context.sends[pair]

    # ---- passes that this speaker begins ----

    def backward(self, outcome, seed, planned=False):
        """From the result of a call, a tensor."""
        run = Pass(self.new_id(), outcome.context.id, False, planned)
        run.is_known, run.root = True, (outcome, seed)
        self.passes[run.id] = run
        if planned:
            self.expect(run, outcome)
        else:
            self.search(run)
        return run

    def search(self, run):
        run.planned = False
        walk = Walk(None, None)
        run.walks.append(walk)
        outcome, _ = run.root
        self.ask_behind(run, walk, Send(None, None, None, (outcome.pair, outcome.peer, outcome.count)))

    def expect(self, run, outcome):
        """Follows the records: which sends each worker has, and which recvs it reaches from them."""
        todo = [(outcome.pair, slot) for slot in range(outcome.count)]
        records = self.contexts[run.context].records
        sends, recvs = {}, {}
        while todo:
            pair, slot = todo.pop()
            if slot in sends.setdefault(pair.maker, {}).setdefault(pair, set()):
                continue
            sends[pair.maker][pair].add(slot)
            behind = records.get((pair, slot), set())
            if not behind or (NONE, 1) in behind:
                return self.search(run)
            recvs.setdefault(pair.maker, set()).update(behind - {(NONE, 0)})
            todo += behind - {(NONE, 0)}
        pairs = {maker: [new("PairBits", pair=pair, bits=[slot in reached for slot in range(max(reached) + 1)])
                         for pair, reached in of.items()] for maker, of in sends.items()}
        self.reach(run, pairs.pop(self.incarnation, []))
        for maker, told in pairs.items():
            self.send(self.peers[maker], new("Expect", context=run.context, pass_=run.id, sends=told,
                                             check=wire.plan_hash(recvs.get(maker, ()))))
        return self.begin(run, pairs)

    def begin(self, run, participants):
        run.tallies = dict.fromkeys(participants)
        outcome, seed = run.root
        self.send_gradient(run, (outcome.pair, outcome.peer, outcome.count), [seed])

    def on_done(self, peer, done, reader):
        run = self.passes.get(done.pass_)
        if not run or run.id.maker != self.incarnation:
            return
        if done.error:
            self.finish(run, done.error)
            run.replanned = self.backward(*run.root) if done.replan else None
        else:
            self.tally(run, peer, done.gradsSent, done.gradsReceived)

    def tally(self, run, peer, sent, received):
        run.tallies[peer.incarnation] = (sent, received)
        self.settle(run)

    def settle(self, run):
        """Commits once all are done and nothing is on its way."""
        if None in run.tallies.values() or run.run != set(run.reached):
            return
        sent, received = map(sum, zip((run.sent, run.received), *run.tallies.values()))
        if sent == received:
            self.finish(run, None)

    def finish(self, run, error):
        del self.passes[run.id]
        run.outcome = error or "commit"
        for incarnation in run.tallies:
            self.send(self.peers[incarnation], new("Verdict", context=run.context, pass_=run.id, commit=not error,
                                                   error=error))
        if not error:
            self.commit(run)


def add(one, other):
    if one is None or other is None:
        return other if one is None else one
    return Tensor(one.dtype, one.shape, [a + b for a, b in zip(one.numbers, other.numbers)])
