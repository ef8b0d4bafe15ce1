#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/trace_parent.h"
#include "tensor/value.h"
#include "transport/transport.h"

// Messages between workers, as plain structs. schemas/ is the specification: the sender of a message, its time and
// effect, the lifetime of its ids, and the results of failures.
namespace distag::wire {

inline constexpr uint32_t kProtocolVersion = 2;

// ---- session: the stream itself (not numbered, except Ping, Leave and Chunk) ----

// A proof that the sender has the group key. No worker can make or check one yet.
using Proof = std::vector<std::byte>;

struct Hello {
  std::string job;
  uint32_t protocol = kProtocolVersion;
  uint64_t features = 0;
  std::string name;
  int32_t rank = -1;
  Incarnation incarnation = 0;
  uint64_t generation = 0;
  std::string endpoint;
  Incarnation wanted = 0;  // the worker that the sender means to reach
  uint64_t max_message_bytes = 0;
  Proof proof = {};
};
struct Welcome {
  Incarnation incarnation = 0;
  uint64_t next = 1;  // number the receiver expects
  Proof proof = {};
  std::string lack = {};  // why the sender sends nothing else
};
enum class RefuseReason : uint8_t {
  kUnspecified = 0,
  kVersion = 1,
  kJob = 2,
  kIncarnation = 3,  // another worker listens here: restarted, or a wrong address
  kReplaced = 4,     // a newer generation of that name is known
  kFenced = 5,
  kUnreachable = 6,  // cannot dial back; the text names the endpoint
  kProtocol = 7,     // the peer sent something that is not allowed
  kStopping = 8,
  kUnknown = 9,   // not a member of this group
  kDamaged = 10,  // bytes of this connection: it is to be dialled again
  kKey = 11,
  kDenied = 12,  // the key belongs to another name
};
struct Refuse {
  RefuseReason reason = RefuseReason::kUnspecified;
  Incarnation incarnation = 0;  // of the refusing worker
  std::string text;
};
struct Ack {};  // only the header's ack field
struct Ping {};
struct Leave {};
struct Chunk {
  uint64_t transfer = 0;
  uint64_t offset = 0;
  uint64_t total = 0;
  bool abandoned = false;  // no piece: the sender gives the transfer up
  Frame piece;
};

// ---- rpc ----

// Notes of the autograd layer on a call or an answer: the context, and the pair. The pair's send holds the tensors that
// require grad (a bit for each in `tracked`, in the order of Value::for_each_tensor over all values).
struct AutogradMetadata {
  // In the record of `pair`: its `slot` depends on `on_slot` of `on`.
  struct Link {
    Id pair;
    Id on;  // {0,0}: on nothing; or, with on_slot 1, on more than is listed
    uint32_t slot = 0;
    uint32_t on_slot = 0;
    bool operator==(const Link&) const = default;
  };

  Id context;
  int32_t creator_rank = -1;
  Id pair;                          // {0,0}: no tensor requires grad
  std::vector<bool> tracked;        // empty when there is no pair
  std::vector<Incarnation> joined;  // in answers: known holders of the context below this call
  std::vector<Link> lineage = {};
};

class Packed;

struct Call {
  Id call;
  std::string function;
  Values args;
  Nanos time_left = kForever;
  AutogradMetadata metadata;  // context {0,0}: none
  std::string label;
  Id keep{};  // {0,0}: the result travels back; else it stays with the callee under this name
  std::shared_ptr<const Packed> packed{};  // sent in place of args
  uint64_t cost = 0;                       // charged to the sender's budget for the receiver
  uint64_t bytes = 0;                      // of a received call: its size in transit
  std::shared_ptr<const TraceParent> trace_parent{};
  bool has_bad_trace_parent = false;  // of a received call: a malformed one was dropped
};
struct Reply {
  Id call;
  bool failed = false;
  Error error;  // when failed: with origin rank, may_have_run and the chain of workers in its message
  Value result;
  AutogradMetadata metadata;
  std::shared_ptr<const Packed> packed{};  // sent in place of result
  uint64_t taken = 0;                      // as Credit
};
struct Credit {
  uint64_t taken = 0;  // the costs of all requests of the receiver that the sender has taken
};
struct WantCredit {
  uint64_t taken = 0;  // a Credit is wanted once `taken` is this large
};
struct Cancel {
  Id call;
};

// Start and end of a group: rendezvous over tcp (Join, Roster), shutdown of a static group in rounds.
struct Member {
  int32_t rank = -1;
  std::string name;
  std::string endpoint;
  Incarnation incarnation = 0;
  uint64_t generation = 0;
  uint64_t max_message_bytes = 0;
};
struct Join {
  std::string job;
  uint32_t protocol = kProtocolVersion;
  int32_t world_size = 0;
  Member member;
  Proof proof = {};
  Incarnation asked = 0;  // the incarnation that the sender asks about
  std::string host = {};  // for people; empty, 0: not given
  uint64_t process = 0;
};
struct Roster {
  bool refused = false;
  Error error;
  std::vector<Member> members;  // empty while others are missing
  std::vector<int32_t> missing;
  uint32_t offset = 0;  // members in the pages before
  uint32_t total = 0;   // members in all pages
  Proof proof = {};
  Incarnation asked = 0;  // not 0: the answer for that incarnation, with one member or none
};
struct PeerCount {
  Incarnation peer = 0;
  uint64_t requests_sent = 0;
  uint64_t requests_received = 0;
};
struct ShutdownPoll {  // answered each time the answer changes, until the next round
  uint64_t round = 0;
  std::vector<Incarnation> missing;  // members that have not asked the leader for the shutdown yet
};
struct ShutdownAnswer {
  uint64_t round = 0;
  bool stopping = false;  // shutdown was asked for here
  bool idle = false;
  std::vector<PeerCount> counts;
  std::vector<Incarnation> lost;  // peers that the sender has lost
};
struct ShutdownVerdict {
  uint64_t round = 0;  // all are quiet: leave
};

// ---- distributed autograd ----

struct PairBits {
  uint64_t pair_counter = 0;  // of the pair, made by `pair_maker`
  Incarnation pair_maker = 0;
  std::vector<bool> bits;  // of the send's tensors
};
struct Joined {  // to a context's creator, or a pass's initiator
  Id context;
  Id pass;  // {0,0}: the context
};
struct Release {
  std::vector<Id> contexts;
};
struct EntryName {  // a call of a mesh by which a part became a plain tensor
  Id mesh;
  uint64_t call = 0;
  uint64_t line = 0;  // a hash of its name
};
struct Discover {
  Id context;
  Id pass;
  Id request;  // this message, for its answer
  bool retain_graph = false;
  std::vector<PairBits> pairs;
  std::vector<EntryName> entries;
  bool creates_graph = false;
};
struct Discovered {
  Id context;
  Id pass;
  Id request;
  bool failed = false;
  Error error;
  std::vector<Incarnation> participants;
  bool has_entries = false;  // the walk has reached entries
};
struct Start {  // FAST
  Id context;
  Id pass;
  bool retain_graph = false;
  bool creates_graph = false;
};
struct Go {  // SMART: all have searched; the joint steps begin
  Id context;
  Id pass;
};
struct Entered {  // to the first member of a mesh: a gradient has come to an entry here
  Id context;
  Id pass;
  EntryName entry;
};
struct Expect {  // SMART: the receiver's part of a plan
  Id context;
  Id pass;
  bool retain_graph = false;
  std::vector<PairBits> sends;
  uint64_t check = 0;
  bool creates_graph = false;
};
struct Grad {
  Id context;
  Id pass;
  Id pair;
  bool retain_graph = false;
  bool fast = false;
  std::vector<bool> live;  // bits that carry a gradient or a zero
  Values gradients;        // one per live bit: a tensor, or null for zero
  bool planned = false;    // in a pass that began with EXPECT
  bool done = false;       // the sender's part is over, as in DONE, with these counts:
  uint64_t grads_sent = 0;
  uint64_t grads_received = 0;
  bool creates_graph = false;
  AutogradMetadata recording = {};  // with creates_graph: for the gradients that have a history
};
struct Done {
  Id context;
  Id pass;
  bool failed = false;
  Error error;
  uint64_t grads_sent = 0;
  uint64_t grads_received = 0;
  std::vector<Incarnation> grads_to;  // FAST: they take part
  bool replan = false;                // with an error: the plan did not hold here
  bool creates_graph = false;         // the gradients of this part have a history
};
struct Verdict {
  Id context;
  Id pass;
  bool commit = false;
  Error error;  // of an abort
};
struct Probe {  // FAST: the initiator asks for counts, to find out that nothing can move
  Id context;
  Id pass;
  uint64_t round = 0;
};
struct ProbeAnswer {
  Id context;
  Id pass;
  uint64_t round = 0;
  bool idle = false;
  uint64_t grads_sent = 0;
  uint64_t grads_received = 0;
  std::vector<std::string> unreached;  // the calls that its waiting sends belong to
  std::vector<Incarnation> grads_to;
};
struct Holders {  // FAST: another initiator asks the creator for the holders of the context (empty list); or the answer
  Id context;
  Id request;
  bool answer = false;
  std::vector<Incarnation> holders;
};

// ---- remote references ----

// The wire form of a reference.
struct Reference : ExternalValue {
  Id value;
  Incarnation owner = 0;
  int32_t owner_rank = 0;
  Id fork;  // {0,0}: the receiver is the owner

  Reference() = default;
  Reference(const Id& v, Incarnation o, int32_t r, const Id& f) : value(v), owner(o), owner_rank(r), fork(f) {}
  ValueKind kind() const final { return ValueKind::kRref; }
};
struct Fork {
  Id value;
  Id fork;
};
struct Forked {
  Id fork;
  Incarnation holder = 0;
};
struct Drop {
  Id fork;
};
struct Seek {
  Id value;
};
struct Sought {
  Id value;
};

// ---- meshes ----

struct Part {
  Id mesh;
  std::string line;
  uint64_t number = 0;
  uint32_t part = 0;
  uint64_t hash = 0;
  Values pieces;  // tensors
};
struct Calls {
  struct Made {
    uint64_t number = 0;
    uint64_t hash = 0;
    std::string text;
  };
  Id mesh;
  std::string line;
  std::vector<Made> calls;  // oldest first
};
struct MeshEnd {
  Id mesh;
  Error error;
  bool left = false;  // the sender has no more obligations
};
struct CallHash {       // a line's hash with this call
  uint64_t number = 0;  // 0: none
  uint64_t hash = 0;
};
struct Where {
  Id mesh;
  std::string line;
  CallHash last;          // the last call that was made
  uint64_t proposed = 0;  // the counter in the receiver's request for the mesh
};
struct Here {
  Id mesh;
  std::string line;
  bool is_open = false;
  bool in_call = false;
  uint64_t number = 0;
  std::string text;
  Nanos age = 0;
  std::vector<int32_t> waits_for;  // ranks
  CallHash last;                   // the last call that was made
};

// In the order of the schema's union, but without Long, which is between Sought and Part there.
using Body = std::variant<Hello, Welcome, Refuse, Ack, Ping, Leave, Chunk, Call, Reply, Cancel, Join, Roster,
                          ShutdownPoll, ShutdownAnswer, ShutdownVerdict, Joined, Release, Discover, Discovered, Start,
                          Grad, Done, Verdict, Probe, ProbeAnswer, Holders, Fork, Forked, Drop, Seek, Sought, Part,
                          Calls, MeshEnd, Where, Here, Go, Entered, Credit, WantCredit, Expect>;

// Payload frame `frame` of a message was sent ahead of it in chunks.
struct Transfer {
  uint64_t id = 0;
  uint32_t frame = 0;
};

struct Message {
  uint64_t number = 0;  // place in the stream; 0: not numbered
  uint64_t ack = 0;     // all of the other direction's numbers up to here have arrived
  std::vector<Transfer> transfers;
  Body body;
};

// "CALL", for logs and errors.
const char* body_name(const Body& body);

}  // namespace distag::wire
