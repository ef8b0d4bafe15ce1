"""Streams between this speaker and distag workers, and its place in a group: session.fbs and group.fbs."""
import collections
import random
import struct
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

import wire
from wire import Id, Malformed, kind, new, number_of

PROTOCOL = 2
PIECE = 1 << 20  # bytes of a CHUNK, and of a payload frame that travels in one
MOST_CHUNKS = 8 << 20  # bytes of them that are unacknowledged
DROPPED = (zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL |
           zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH)

# What the shutdown vote counts, see group.fbs.
REQUESTS = {"Call", "Fork", "Forked", "Drop", "Seek", "Sought", "Part", "Calls", "MeshEnd", "Where", "Here"}


class Peer:
    """Another member, the stream to it and the one from it."""

    def __init__(self, member):
        self.name, self.endpoint = member.name.decode(), member.endpoint.decode()
        self.rank, self.incarnation, self.generation = member.rank, member.incarnation, member.generation
        self.line = None  # the connection dialled
        self.welcomed = False
        self.dropped = 0  # connections since the last WELCOME
        self.redial_at = None
        self.sent = 0
        self.unacked = collections.deque()  # (number, frames), in order
        self.heard = time.monotonic()  # when it acknowledged something
        self.asked = 0.0
        self.route = None  # the connection accepted
        self.received = 0
        self.owes_ack = False
        self.transfers = {}
        self.transfers_sent = 0
        self.waiting = collections.deque()  # messages behind more chunks than may be out
        self.lost = None  # why
        self.left = False
        self.repetitions = 0
        self.requests_sent = self.requests_received = 0


class Line:
    """A connection that was dialled: a DEALER that lives for it alone, as HELLO or JOIN comes first on each."""

    def __init__(self, streams, endpoint, name):
        self.socket = streams.zmq.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.reconnect_ivl = -1
        self.socket.curve_publickey, self.socket.curve_secretkey = streams.own_keys
        self.socket.curve_serverkey = streams.key_of(name)
        self.monitor = self.socket.get_monitor_socket(DROPPED)
        self.socket.connect(endpoint)

    def has_dropped(self):
        dropped = False
        while self.monitor.poll(0):
            recv_monitor_message(self.monitor)
            dropped = True
        return dropped

    def send(self, frames):
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            pass  # it has dropped: said again on the next one

    def messages(self):
        bodies = []
        while self.socket.poll(0):
            bodies.append(wire.decode(self.socket.recv_multipart())[0].body)
        return bodies

    def close(self):
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close()


class Streams:
    """One member of a group. Nothing happens but in pump(), which the program calls."""

    def __init__(self, name, rank, own_keys, key_of, job="default", lease=5.0, names=("",)):
        self.name, self.rank, self.job, self.lease = name, rank, job, lease
        self.own_keys, self.key_of = own_keys, key_of  # the public key of the one who is called so
        self.names = names  # that have a key
        self.incarnation = random.SystemRandom().randrange(1, 2**64)
        self.generation = 0
        self.counter = 0
        self.peers = {}  # by incarnation
        self.gate = None  # the connection to the rendezvous
        self.joins = 0
        self.rejoin_at = None
        self.members = []
        self.early = []  # HELLOs before the roster
        self.refused = None
        self.missing = None
        self.stopping = self.over = False
        self.looked = time.monotonic()  # when it last pumped
        self.zmq = zmq.Context()
        self.zap = self.zmq.socket(zmq.REP)  # asked by libzmq whom to let in (rfc.zeromq.org/spec/27)
        self.zap.bind("inproc://zeromq.zap.01")
        self.listener = self.zmq.socket(zmq.ROUTER)
        self.listener.linger = 0
        self.listener.curve_server = True
        self.listener.curve_secretkey = own_keys[1]
        self.listener.zap_domain = b"distag"
        self.endpoint = f"tcp://127.0.0.1:{self.listener.bind_to_random_port('tcp://127.0.0.1')}"

    def close(self):
        for line in [self.gate] + [peer.line for peer in self.peers.values()]:
            if line:
                line.close()
        self.zmq.destroy(0)

    def new_id(self):
        self.counter += 1
        return Id(self.incarnation, self.counter)

    # ---- the group ----

    def join(self, rendezvous, world_size, rendezvous_name="worker0", protocol=PROTOCOL):
        """Asks for a place, and again on another connection whenever this one drops."""
        self.rejoin = lambda: self.join(rendezvous, world_size, rendezvous_name, protocol)
        self.joins += 1
        self.is_open = world_size < 0
        self.gate = Line(self, rendezvous, rendezvous_name)
        me = new("Member", rank=self.rank, name=self.name, endpoint=self.endpoint, incarnation=self.incarnation,
                 maxMessageBytes=64 << 20)
        self.say(self.gate, new("Join", job=self.job, protocol=protocol, worldSize=world_size, member=me))

    def on_roster(self, roster):
        self.missing = roster.missing
        if roster.error:
            self.refused = roster.error
            return
        if roster.offset != len(self.members):  # pages come in order, from the first one each time
            if roster.offset:
                return
            self.members = []
        self.members += roster.members or []
        if roster.total and len(self.members) == roster.total:
            me = next(member for member in self.members if member.incarnation == self.incarnation)
            self.generation, self.rank = me.generation, me.rank  # what HELLO says
            for member in self.members:
                if member.incarnation != self.incarnation and member.incarnation not in self.peers:
                    self.add(member)
            while self.early:
                self.accept(*self.early.pop())

    def add(self, member):
        """A member of the roster, or one that says HELLO. By a PING it knows this one."""
        for peer in self.peers.values():
            if peer.name == member.name.decode():
                self.lose(peer, "it was restarted")
        peer = self.peers[member.incarnation] = Peer(member)
        self.send(peer, new("Ping"))
        return peer

    def may_join(self, stranger):
        """Whoever comes back, and in an open group everybody: under a name and rank that are no other's."""
        name, peers = stranger.name.decode(), self.peers.values()
        others = [peer.name for peer in peers if peer.rank == stranger.rank]
        if any(peer.name == name and peer.generation >= stranger.generation for peer in peers):
            return False
        return set(others) == {name} or self.is_open and not others and name not in [peer.name for peer in peers]

    def peer(self, name):
        return next(peer for peer in self.peers.values() if peer.name == name)

    def has_joined(self):
        return self.generation > 0 and not any(peer.unacked for peer in self.peers.values())

    # ---- what goes out ----

    def say(self, line, body):
        """Not numbered: on the connection, and gone if that drops."""
        line.send(wire.place(wire.encode(body), 0, 0))

    def dial(self, peer):
        if peer.line:
            peer.line.close()
        peer.welcomed, peer.redial_at = False, None
        peer.line = Line(self, peer.endpoint, peer.name)
        self.say(peer.line, new("Hello", job=self.job, protocol=PROTOCOL, name=self.name, rank=self.rank,
                                incarnation=self.incarnation, generation=self.generation, endpoint=self.endpoint,
                                wanted=peer.incarnation, maxMessageBytes=64 << 20))

    def send(self, peer, body, writer=None):
        """Numbers a message and keeps it until it is acknowledged."""
        frames = wire.encode(body, writer)
        if sum(map(len, frames[1:])) > PIECE:
            frames = self.send_ahead(peer, body, writer)
        self.enqueue(peer, frames)
        peer.requests_sent += kind(body) in REQUESTS

    def send_ahead(self, peer, body, writer):
        """Large frames go in CHUNKs; gives the message that names them."""
        transfers = []
        for index, frame in enumerate(writer.frames):
            peer.transfers_sent += 1
            transfers.append(new("Transfer", id=peer.transfers_sent, frame=index))
            for offset in range(0, len(frame), PIECE):
                piece = wire.Writer()
                piece.frames.append(frame[offset:offset + PIECE])
                chunk = new("Chunk", transfer=peer.transfers_sent, offset=offset, total=len(frame))
                self.enqueue(peer, wire.encode(chunk, piece))
        writer.frames = []
        return wire.encode(body, writer, transfers)

    def enqueue(self, peer, frames):
        if peer.lost or peer.left:
            return
        if not peer.line:
            self.dial(peer)
        peer.waiting.append(frames)
        self.release_waiting(peer)

    def release_waiting(self, peer):
        def bytes_out():
            return sum(len(frames[1]) for _, frames in peer.unacked if len(frames) > 1)

        while peer.waiting and bytes_out() <= MOST_CHUNKS - PIECE:
            peer.sent += 1
            peer.unacked.append((peer.sent, peer.waiting.popleft()))
            if peer.welcomed:
                self.transmit(peer, *peer.unacked[-1])

    def transmit(self, peer, number, frames):
        peer.line.send(wire.place(frames, number, peer.received))
        peer.owes_ack = False

    def acknowledged(self, peer, number):
        while peer.unacked and peer.unacked[0][0] <= number:
            peer.unacked.popleft()
            peer.heard = time.monotonic()
        self.release_waiting(peer)

    def lose(self, peer, why):
        if not peer.lost and not peer.left:
            peer.lost = why

    # ---- what comes in ----

    def refuse(self, route, reason, text):
        refusal = new("Refuse", reason=number_of("RefuseReason", reason), incarnation=self.incarnation, text=text)
        self.listener.send_multipart([route, *wire.place(wire.encode(refusal), 0, 0)])
        for peer in self.peers.values():
            if peer.route == route:
                peer.route = None

    def accept(self, route, hello, key_name):
        """HELLO; the key by which it came belongs to key_name, "" to each member."""
        peer = self.peers.get(hello.incarnation)
        if hello.protocol != PROTOCOL:
            return self.refuse(route, "Version", f"this is protocol {PROTOCOL}, not {hello.protocol}")
        if hello.job.decode() != self.job:
            return self.refuse(route, "Job", f"this is job {self.job}")
        if hello.wanted not in (0, self.incarnation):
            return self.refuse(route, "Incarnation", "this is another incarnation")
        if key_name not in ("", hello.name.decode()):
            return self.refuse(route, "Denied", f"the key is that of {key_name}")
        if not self.generation:  # the other has the roster already
            return self.early.append((route, hello, key_name))
        if not peer and self.may_join(hello):
            peer = self.add(hello)
        if not peer or peer.left:
            return self.refuse(route, "Unknown", "not a member of this group")
        if peer.lost:
            return self.refuse(route, "Fenced", peer.lost)
        peer.route = route
        welcome = new("Welcome", incarnation=self.incarnation, next=peer.received + 1)
        self.listener.send_multipart([route, *wire.place(wire.encode(welcome), 0, 0)])
        if not peer.line:
            self.dial(peer)

    def receive(self):
        route, *parts = self.listener.recv_multipart(copy=False)
        route, frames = route.bytes, [part.bytes for part in parts]
        peer = next((peer for peer in self.peers.values() if peer.route == route), None)
        try:
            message, reader = wire.decode(frames)
        except (Malformed, struct.error, IndexError, AttributeError) as failure:
            return self.refuse(route, "Damaged", str(failure))
        if kind(message.body) == "Hello":
            return self.accept(route, message.body, parts[0].get("User-Id"))
        if not peer or peer.lost:
            return None  # a connection that was given up
        self.acknowledged(peer, message.place.ack)
        number = message.place.number
        if not number:  # an ACK
            return None
        if number > peer.received + 1:
            return self.refuse(route, "Damaged", f"number {number} came, {peer.received + 1} is next")
        peer.owes_ack = True
        if number <= peer.received:
            peer.repetitions += 1
            return None
        peer.received = number
        for transfer in message.transfers or []:
            reader.frames.insert(transfer.frame, bytes(peer.transfers.pop(transfer.id)))
        peer.requests_received += kind(message.body) in REQUESTS
        return self.take(peer, message.body, reader)

    def take(self, peer, body, reader):
        """Each numbered message, once and in order."""
        getattr(self, "on_" + kind(body).lower())(peer, body, reader)

    def on_ping(self, peer, body, reader):
        pass  # its number is acknowledged

    def on_chunk(self, peer, chunk, reader):
        if chunk.abandoned:
            peer.transfers.pop(chunk.transfer, None)
        else:
            peer.transfers.setdefault(chunk.transfer, bytearray()).extend(reader.frames[0])

    def on_leave(self, peer, body, reader):
        peer.left = True

    def answered(self, peer, body):
        """WELCOME or REFUSE on the connection that was dialled."""
        if kind(body) == "Welcome":
            self.acknowledged(peer, body.next - 1)
            if not peer.welcomed:  # one that comes again acknowledges alone
                for number, frames in peer.unacked:
                    self.transmit(peer, number, frames)
            peer.welcomed, peer.dropped = True, 0
        elif body.reason == number_of("RefuseReason", "Damaged"):
            self.dial(peer)
        elif body.reason == number_of("RefuseReason", "Stopping"):
            peer.left = True
        else:
            self.lose(peer, body.text.decode())

    def acknowledge(self, peer):
        peer.owes_ack = False
        peer.line.send(wire.place(wire.encode(new("Ack")), 0, peer.received))

    # ---- turns ----

    def pump(self, seconds=0.005):
        """Handles all that has come, waits at most so long for more, and does what is due."""
        poller = zmq.Poller()
        lines = [line for line in [self.gate] + [peer.line for peer in self.peers.values()] if line]
        for socket in [self.listener, self.zap] + [each for line in lines for each in (line.socket, line.monitor)]:
            poller.register(socket, zmq.POLLIN)
        now = time.monotonic()
        if now - self.looked > self.lease / 4:  # this worker was paused: it cannot say that others were silent
            for peer in self.peers.values():
                peer.asked = now
        self.looked = now
        poller.poll(seconds * 1000)
        while self.zap.poll(0):
            self.let_in(*self.zap.recv_multipart()[:7])
        while self.listener.poll(0):
            self.receive()
        if self.gate:
            for roster in self.gate.messages():
                self.on_roster(roster)
            if self.gate.has_dropped():
                self.rejoin_at = now + 0.02  # libzmq closes sockets later than it opens them: not all at once
            if self.rejoin_at and now > self.rejoin_at:
                self.rejoin_at = None
                self.gate.close()
                self.rejoin()
        for peer in list(self.peers.values()):
            self.turn(peer)

    def turn(self, peer):
        line, now = peer.line, time.monotonic()
        for body in line.messages() if line else ():
            self.answered(peer, body)
        if peer.owes_ack and peer.welcomed:
            self.acknowledge(peer)
        if peer.lost or peer.left or not peer.line:
            return
        if peer.line.has_dropped():
            peer.dropped += 1
            if peer.dropped > 2:
                return self.lose(peer, "its connection dropped and two redials were refused")
            peer.welcomed, peer.redial_at = False, now + 0.01 * 2 ** peer.dropped
        if peer.redial_at and now > peer.redial_at:
            self.dial(peer)
        if not peer.unacked and now - max(peer.heard, peer.asked) > self.lease / 4:
            peer.asked = now
            self.send(peer, new("Ping"))
        if peer.unacked and now - max(peer.heard, peer.asked) > self.lease:
            self.lose(peer, "it acknowledged nothing for a lease")

    def let_in(self, version, request, domain, address, identity, mechanism, key):
        """Answers libzmq with the name to which a key belongs: it comes with each message of that connection."""
        names = [name for name in self.names if self.key_of(name) == wire.z85.encode(key)]
        status = (b"200", b"OK") if names else (b"400", b"not a key of this group")
        self.zap.send_multipart([version, request, *status, (names or [""])[0].encode(), b""])

    def until(self, condition, seconds=120):
        """Pumps until something is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing came of it: {[vars(peer) for peer in self.peers.values()]}")
            self.pump()

    # ---- the end of a static group ----

    def shut_down(self):
        """Votes for the end; `over` once this member has left."""
        self.stopping = True
        self.answer_poll(min(self.peers.values(), key=lambda peer: peer.rank), 0)

    def is_idle(self):
        return True

    def answer_poll(self, leader, round_):
        counts = [new("PeerCount", peer=peer.incarnation, requestsSent=peer.requests_sent,
                      requestsReceived=peer.requests_received) for peer in self.peers.values()]
        self.send(leader, new(
            "ShutdownAnswer", round=round_, stopping=self.stopping, idle=self.is_idle(), counts=counts,
            lost=[peer.incarnation for peer in self.peers.values() if peer.lost]))

    def on_shutdownpoll(self, peer, poll, reader):
        self.polled = poll.round
        self.answer_poll(peer, poll.round)

    def on_shutdownverdict(self, peer, verdict, reader):
        if self.stopping and verdict.round == self.polled:
            self.leave()

    def leave(self):
        for peer in self.peers.values():
            self.send(peer, new("Leave"))
        self.over = True

    def is_gone(self):
        """All have heard that it left."""
        return self.over and all(peer.lost or peer.left or not peer.unacked for peer in self.peers.values())
