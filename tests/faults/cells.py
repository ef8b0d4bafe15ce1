"""The cells of the matrix: steps of the protocol, the faults that strike there, and the transports."""
import hashlib

# A lease of the members, and how long they are stopped: shorter and longer than a peer may be silent (1.4 leases).
LEASE = 1.0
LEASE_OF_KILL = 60.0  # a killed member is lost long before it: where the others hold connections to it
LEASE_OF_IDLE = 4.0  # of a kill in "idle", whose messages come each quarter of a lease
SHORT_STOP = 0.3
LONG_STOP = 2.5
ETCD_DOWN = 1.0  # until a server of etcd that was killed is started again

# Seconds from the fault, or from the beginning of what began later, until an operation ends: what docs/promises.md
# promises, with the room of tests/support/promised.h. A worker that is itself late by a quarter of its lease begins all
# leases anew, as one that was paused, so a loss by silence may take more than 1.4 leases.
ROOM = 6.0
BOUND_OF_KILL = 1.0 + ROOM
BOUND_OF_SILENCE = 2.25 * LEASE + ROOM
BOUND_OF_RECOVERY = 30.0  # nothing promises it a time: told from "never"

# By phase, in the order of the protocol: the member that the fault strikes, the step, and which one of its kind.
# "cold" is a call between members that have not spoken yet; in the others all are connected. In "stop" all shut down
# together; in "leave" one goes, and waits for no process. In those named etcd_ they meet in a server of etcd: "etcd_join"
# begins with the victim alone, in "etcd_lease" A calls the others while leases are renewed, and in "etcd_return" all
# leases are taken away meanwhile.
#
# In the phases behind these a group is quiet, or something is wrong without a fault: "idle" goes on until the step is
# reached, in "damaged" a message of A has a changed byte, in "gone" a reference is to a value that was never made, in
# "unreached" a FAST pass has a send without a gradient, in "diverged" C makes another call than the others, and in
# "late" it makes its call once they have asked where it is. In "holders" B begins a pass in the context of A, and
# "lines" is "stages" with two lines of the mesh. In "curve" a call is the first word between two members, and the steps
# are those of its handshake: A dials B.
STEPS = {
    "start": """
        A Lock.open sent 1, C Lock.open sent 1, A Draft.open sent 1, C Draft.open sent 1,
        A Draft.write sent 1, C Draft.write sent 1, A Group.rename sent 1, C Group.rename sent 1""",
    "join": """
        B Join sent 1, A Join arrived 1, A Roster sent 1, B Roster arrived 1""",
    "cold": """
        A Hello sent 1, B Hello arrived 1, B Welcome sent 1, A Welcome arrived 1,
        B Hello sent 1, A Hello arrived 1, A Welcome sent 1, B Welcome arrived 1""",
    "call": """
        A Call sent 1, B Call arrived 1, B Reply sent 1, A Reply arrived 1""",
    "large": """
        A Chunk sent 1, B Chunk arrived 2, A Call sent 1, B Call arrived 1,
        B Chunk sent 1, A Chunk arrived 2, B Reply sent 1, A Reply arrived 1""",
    "relay": """
        B Call arrived 1, B Call sent 1, C Call arrived 1, C Reply sent 1, B Reply arrived 1, B Reply sent 1""",
    "long": """
        A Long sent 1, B Long arrived 1, B Long sent 1, A Long arrived 1""",
    "cancel": """
        A Cancel sent 1, B Cancel arrived 1""",
    "credit": """
        A WantCredit sent 1, B WantCredit arrived 1, B Credit sent 1, A Credit arrived 1""",
    "references": """
        C Call arrived 1, B Fork sent 1, C Fork arrived 1, C Forked sent 1, A Forked arrived 1,
        B Drop sent 1, A Drop sent 1, C Drop arrived 1""",
    "planned": """
        B Call arrived 1, C Joined sent 1, A Joined arrived 1, A Expect sent 1, B Expect arrived 1, C Expect arrived 1,
        A Grad sent 1, B Grad arrived 1, B Grad sent 1, C Grad arrived 1, C Grad sent 1, A Grad arrived 1,
        C Done sent 1, A Done arrived 1, A Verdict sent 1, A Verdict sent 2, B Verdict arrived 1, C Verdict arrived 1,
        A Release sent 1, A Release sent 2, B Release arrived 1, C Release arrived 1""",
    "searched": """
        A Discover sent 1, B Discover arrived 1, B Discover sent 1, C Discover arrived 1,
        C Discovered sent 1, B Discovered arrived 1, B Discovered sent 1, A Discovered arrived 1,
        B Grad sent 1, C Done sent 1, A Verdict sent 1""",
    "fast": """
        A Start sent 1, C Start arrived 1, A Grad sent 1, B Grad arrived 1, C Grad sent 1, B Done sent 1,
        A Done arrived 1, A Verdict sent 1, C Verdict arrived 1""",
    "optimizer": """
        B Call arrived 1, B Call arrived 2, C Call arrived 2, B Call arrived 3, C Reply sent 3, B Call arrived 4,
        A Reply arrived 5""",
    "mesh": """
        B Call sent 1, A Call arrived 1, A Part sent 1, B Part arrived 1, C Part sent 3, A Part arrived 3,
        B Chunk sent 1, C MeshEnd sent 1, A MeshEnd arrived 1""",
    "stages": """
        B Call arrived 1, C Reply sent 1, A Discover sent 1, B Discovered sent 1, A Go sent 1, B Go arrived 1,
        B Part sent 1, C Part arrived 1, C Grad sent 1, C Done sent 1, A Verdict sent 1, B Verdict arrived 1""",
    "gather": """
        B Call sent 1, A Call arrived 1, A Call sent 1, C Call arrived 1, C Reply sent 1, A Reply arrived 1""",
    "stop": """
        B ShutdownAnswer sent 1, A ShutdownAnswer arrived 1, A ShutdownPoll sent 1, B ShutdownPoll arrived 1,
        A ShutdownPoll sent 3, A ShutdownVerdict sent 1, A ShutdownVerdict sent 2, B ShutdownVerdict arrived 1""",
    "leave": """
        C Leave sent 1, C Leave sent 2""",
    "etcd_join": """
        A Etcd.grant sent 1, C Etcd.grant arrived 1, A Etcd.look sent 1, C Etcd.look arrived 1, A Etcd.enter sent 1,
        C Etcd.enter arrived 1, A Etcd.watch sent 1, C Etcd.watch arrived 1""",
    "etcd_lease": """
        A Etcd.keepalive sent 1, B Etcd.keepalive sent 1, B Etcd.keepalive arrived 1""",
    "etcd_return": """
        B Etcd.watch arrived 1, A Etcd.look sent 1, B Etcd.look arrived 1, B Etcd.grant sent 1, A Etcd.enter sent 2,
        B Etcd.enter arrived 2""",
    "etcd_leave": """
        C Etcd.leave sent 1, C Etcd.leave arrived 1, C Etcd.revoke sent 1""",
    "idle": """
        B Ping arrived 1, A Ack arrived 1""",
    "damaged": """
        B Refuse sent 1""",
    "gone": """
        A Seek arrived 1, C Sought arrived 2""",
    "holders": """
        B Holders arrived 1""",
    "unreached": """
        B Probe arrived 1, A ProbeAnswer arrived 1""",
    "diverged": """
        C Calls sent 1""",
    "late": """
        C Where arrived 1, A Here arrived 1""",
    "lines": """
        B Entered arrived 1""",
    "curve": """
        A Curve.greeting sent 1, B Curve.greeting arrived 1, B Curve.greeting sent 1, A Curve.greeting arrived 1,
        A Curve.hello sent 1, B Curve.hello arrived 1, B Curve.welcome sent 1, A Curve.welcome arrived 1,
        A Curve.initiate sent 1, B Curve.initiate arrived 1, B Curve.ready sent 1, A Curve.ready arrived 1""",
}

# The faults of tests/faults/fault_points.h; two of them are one, for different times.
RECOVERED = ("short stop", "cut", "lose", "slow", "clock", "date")  # everything goes on as if nothing had happened
LOSSES = ("kill", "long stop", "mute", "deaf")  # the others lose the member
OF_ETCD = ("etcd kill", "etcd stop")  # of the server: killed and started again, or stopped for long; nobody is lost
FAULTS = LOSSES + RECOVERED + OF_ETCD + ("memory", "disk")

# "lane" is shared memory beside ipc://; the others are sockets alone.
TRANSPORTS = ("lane", "ipc", "tcp with a key", "tcp without keys")
# In "curve" all cells run with each engine; in the other phases one of six runs with distag's own.
CURVE_BY_LIBZMQ, CURVE_BY_ZMTP = "tcp with a key by libzmq", "tcp with a key by zmtp"
ENGINES_OF_CURVE = (CURVE_BY_LIBZMQ, CURVE_BY_ZMTP)

# Where there are no connections none can fail; where no file is written no disk can be full. In "start" a stop of
# any length holds nobody's lease: nobody has spoken yet.
FILE_PHASES = ("start",)
MEETINGS = ("start", "join", "etcd_join")
LEAVES = ("leave", "etcd_leave")
FIRST_WORDS = ("cold", "curve")  # between members that have not spoken yet
NEED_CONNECTIONS = ("cut", "lose", "mute", "deaf", "slow")


class Cell:
    def __init__(self, number, phase, step, fault, transport):
        self.number, self.phase, self.step, self.fault, self.transport = number, phase, step, fault, transport
        self.victim, self.kind, self.way, self.nth = step.split()

    def meets_in_etcd(self):
        return self.phase.startswith("etcd_")

    def lease(self):
        """Of its members, in seconds."""
        is_connected = not self.meets_in_etcd() and self.phase not in ("stop", *FIRST_WORDS, *MEETINGS, *LEAVES)
        if self.fault != "kill" or not is_connected:
            return LEASE
        return LEASE_OF_IDLE if self.phase == "idle" else LEASE_OF_KILL

    def bound(self, is_victim=False):
        """Of its operations, in seconds. A victim that does not run cannot keep to a time."""
        if self.fault == "kill":
            return BOUND_OF_KILL
        own = BOUND_OF_SILENCE if self.fault in LOSSES else BOUND_OF_RECOVERY
        return own + (LONG_STOP if is_victim and self.fault == "long stop" else 0)

    def is_zmtp(self):
        """Whether distag's own engine of sockets carries it, and not libzmq."""
        return self.transport == CURVE_BY_ZMTP if self.phase == "curve" else self.number % 6 == 0

    def __str__(self):
        return f"{self.phase}: {self.step} | {self.fault} | {self.transport}"


def applies(phase, fault, transport):
    if (phase == "curve") != (transport in ENGINES_OF_CURVE):
        return False
    if phase == "curve" and fault == "memory":  # libzmq may end a process that has none (SECURITY.md)
        return transport == CURVE_BY_ZMTP
    if phase.startswith("etcd_"):
        return fault != "disk"
    if fault in OF_ETCD:
        return False
    if phase in FILE_PHASES:
        return fault not in NEED_CONNECTIONS
    if phase == "join":  # the rendezvous at tcp://
        return fault != "disk" and transport.startswith("tcp")
    return fault != "disk"


def digest(cells):
    """Of their names."""
    return hashlib.sha256("\n".join(map(str, cells)).encode()).hexdigest()


def traits(cell):
    return {("phase", cell.phase), ("fault", cell.fault), ("kind", cell.kind), ("transport", cell.transport)}


def sample(cells, stride):
    """Each `stride`-th, and the first one of each phase, fault, kind and transport that these leave out."""
    taken = cells[::stride]
    missing = set().union(*map(traits, cells)) - set().union(*map(traits, taken))
    for cell in cells:
        if traits(cell) & missing:
            taken.append(cell)
            missing -= traits(cell)
    return sorted(taken, key=lambda cell: cell.number)


def all_cells(is_full):
    """All faults at all steps: each over one transport, in turn, and the kill over each, as in "curve" all are.
    `is_full`: each over each."""
    cells = []
    steps = [(phase, " ".join(step.split())) for phase, text in STEPS.items() for step in text.split(",")]
    for at, (phase, step) in enumerate(steps):
        for turn, fault in enumerate(FAULTS):
            possible = [each for each in TRANSPORTS + ENGINES_OF_CURVE if applies(phase, fault, each)]
            if possible and not is_full and fault != "kill" and phase != "curve":
                possible = [possible[(at + turn) % len(possible)]]
            cells += [Cell(0, phase, step, fault, transport) for transport in possible]
    for number, cell in enumerate(cells, 1):
        cell.number = number
    return cells
