#include "processes/participant.h"

#include <chrono>
#include <csignal>
#include <cstdio>

namespace distag::testing {
namespace {

using FunctionBody = distag_status (*)(Participant&, distag_invocation*, distag_error*);

// The context is noted before the body runs; most bodies then need nothing of user data but the participant.
template <FunctionBody body>
distag_status call_body(void* user_data, distag_invocation* invocation, distag_error* err) {
  auto& self = *static_cast<Participant*>(user_data);
  distag_context* context = distag_invocation_get_context(invocation);
  if (context != nullptr) self.remember(context);
  return body(self, invocation, err);
}

distag_status answer(distag_invocation* invocation, distag_value* value, distag_error* err) {
  distag_invocation_return(invocation, value, err);
  return err->code;
}

distag_status add(Participant&, distag_invocation* invocation, distag_error* err) {
  distag_tensor *a = nullptr, *b = nullptr;
  Tensor sum;
  distag_invocation_get_tensor(invocation, 0, &a, err);
  distag_invocation_get_tensor(invocation, 1, &b, err);
  distag_add(a, b, sum.out(), err);
  return answer(invocation, distag_tensor_as_value(sum.get()), err);
}

distag_call_options within(distag_invocation* invocation) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.within = invocation;
  return options;
}

distag_status relay(Participant& self, distag_invocation* invocation, distag_error* err) {
  const char *to = nullptr, *function = nullptr;
  distag_value_get_text(distag_invocation_get_arg(invocation, 0), &to, err);
  distag_value_get_text(distag_invocation_get_arg(invocation, 1), &function, err);
  if (err->code != DISTAG_OK) return err->code;
  std::vector<distag_value*> args;
  for (size_t i = 2; i < distag_invocation_get_arg_count(invocation); ++i) {
    args.push_back(distag_invocation_get_arg(invocation, i));
  }
  const distag_call_options options = within(invocation);
  Value result;
  distag_call(self.worker(), distag_invocation_get_context(invocation), to, function, args.data(), args.size(),
              &options, result.out(), err);
  return answer(invocation, result.get(), err);
}

distag_status info(Participant& self, distag_invocation* invocation, distag_error* err) {
  Value counts;
  self.describe_context(counts.out(), err);
  return answer(invocation, counts.get(), err);
}

distag_status noop(Participant&, distag_invocation*, distag_error*) { return DISTAG_OK; }

distag_status forget(Participant& self, distag_invocation*, distag_error*) {
  self.remember(nullptr);
  return DISTAG_OK;
}

distag_status contexts(Participant& self, distag_invocation* invocation, distag_error* err) {
  distag_stats stats = DISTAG_STATS_INIT;
  Value count;
  distag_worker_get_stats(self.worker(), &stats, err);
  distag_value_create_int64(static_cast<int64_t>(stats.contexts), count.out(), err);
  return answer(invocation, count.get(), err);
}

distag_status descend(Participant& self, distag_invocation* invocation, distag_error* err) {
  int64_t depth = 0, below = 0;
  const char* other = nullptr;
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &depth, err);
  distag_value_get_text(distag_invocation_get_arg(invocation, 1), &other, err);
  if (err->code != DISTAG_OK) return err->code;
  Value result;
  if (depth > 0) {
    Value next, me, reached;
    distag_value_create_int64(depth - 1, next.out(), err);
    distag_value_create_text(distag_worker_get_name(self.worker()), me.out(), err);
    distag_value* args[] = {next.get(), me.get()};
    const distag_call_options options = within(invocation);
    distag_call(self.worker(), nullptr, other, "descend", args, 2, &options, reached.out(), err);
    distag_value_get_int64(reached.get(), &below, err);
    ++below;
  }
  distag_value_create_int64(below, result.out(), err);
  return answer(invocation, result.get(), err);
}

distag_status die(Participant&, distag_invocation*, distag_error*) {
  std::raise(SIGKILL);
  return DISTAG_OK;
}

distag_status identity_forward(void*, distag_tensor* const* inputs, size_t, distag_tensor** outputs, size_t,
                               distag_error* err) {
  return distag_clone(inputs[0], &outputs[0], err);
}

distag_status deadly_backward(void*, distag_tensor* const*, size_t, distag_tensor**, size_t, distag_error*) {
  std::raise(SIGKILL);
  return DISTAG_OK;
}

distag_status deadly(Participant&, distag_invocation* invocation, distag_error* err) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  op.name = "deadly";
  op.forward = identity_forward;
  op.backward = deadly_backward;
  distag_tensor* x = nullptr;
  Tensor y;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  if (err->code == DISTAG_OK) distag_apply_custom(&op, &x, 1, y.out(), 1, err);
  return answer(invocation, distag_tensor_as_value(y.get()), err);
}

distag_status silence(Participant& self, distag_invocation* invocation, distag_error* err) {
  Reply reply;
  distag_invocation_defer(invocation, reply.out(), err);
  distag_reply_retain(reply.get());
  self.keep(reply.get());
  return err->code;
}

distag_status call_all(Participant& self, distag_invocation* invocation, distag_error* err) {
  std::vector<int32_t> ranks(256);
  size_t count = 0;
  distag_worker_copy_ranks(self.worker(), "", ranks.data(), ranks.size(), &count, err);
  const distag_call_options options = within(invocation);
  std::vector<Future> answers(count);
  for (size_t i = 0; i < count; ++i) {
    distag_member member = DISTAG_MEMBER_INIT;
    distag_worker_get_member(self.worker(), ranks[i], &member, err);
    distag_call_async(self.worker(), nullptr, member.name, "noop", nullptr, 0, &options, answers[i].out(), err);
  }
  for (Future& each : answers) distag_future_wait(each.get(), DISTAG_FOREVER, err);
  Value reached;
  distag_value_create_int64(static_cast<int64_t>(count), reached.out(), err);
  return answer(invocation, reached.get(), err);
}

distag_status leave(Participant& self, distag_invocation*, distag_error*) {
  self.release();
  return DISTAG_OK;
}

distag_status started(Participant& self, distag_invocation*, distag_error*) {
  self.note_start();
  return DISTAG_OK;
}

}  // namespace

std::string Participant::name_of(int rank) {
  return rank < 26 ? std::string(1, static_cast<char>('A' + rank)) : "P" + std::to_string(rank);
}

Participant::Participant(const ParticipantOptions& given) {
  const std::string name = name_of(given.rank);
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.rank = given.world_size == 0 ? 0 : given.rank;
  options.world_size = given.world_size;
  options.name = name.c_str();
  options.thread_count = given.thread_count;
  options.lease_ns = given.lease_ns;
  options.user_data = this;
  options.on_member = note_member;
  if (!given.rendezvous.empty()) options.rendezvous = given.rendezvous.c_str();
  if (!given.job.empty()) options.job = given.job.c_str();
  distag_worker_create(&options, worker_.out(), &create_error_);
  register_all(&create_error_);
}

Participant::~Participant() { remember(nullptr); }

void Participant::register_all(distag_error* err) {
  const std::pair<const char*, distag_function> functions[] = {
      {"add", call_body<add>},         {"relay", call_body<relay>},       {"info", call_body<info>},
      {"noop", call_body<noop>},       {"forget", call_body<forget>},     {"contexts", call_body<contexts>},
      {"descend", call_body<descend>}, {"die", call_body<die>},           {"deadly", call_body<deadly>},
      {"silence", call_body<silence>}, {"call_all", call_body<call_all>}, {"leave", call_body<leave>},
      {"started", call_body<started>},
  };
  for (const auto& [name, function] : functions) {
    distag_worker_register(worker_.get(), name, function, this, nullptr, nullptr, err);
  }
}

distag_status Participant::start(int64_t timeout_ns, distag_error* err) {
  if (create_error_.code != DISTAG_OK) return distag_error_set(err, create_error_.code, create_error_.message);
  return distag_worker_start(worker_.get(), timeout_ns, err);
}

distag_status Participant::shutdown(int64_t timeout_ns, distag_value** out_report, distag_error* err) {
  const distag_status status = distag_worker_shutdown(worker_.get(), timeout_ns, out_report, err);
  remember(nullptr);
  return status;
}

void Participant::remember(distag_context* context) {
  if (context != nullptr) distag_context_retain(context);
  Context dropped(context);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(dropped, context_);
}

distag_status Participant::describe_context(distag_value** out_info, distag_error* err) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (context_.get() == nullptr) {
    const int64_t none = -1;
    return distag_value_create_int64_list(&none, 1, out_info, err);
  }
  distag_context_info counts = DISTAG_CONTEXT_INFO_INIT;
  int32_t ranks[16];
  size_t known = 0;
  distag_context_get_info(context_.get(), &counts, err);
  distag_context_copy_known_ranks(context_.get(), ranks, 16, &known, err);
  if (err->code != DISTAG_OK) return err->code;
  std::vector<int64_t> items = {counts.send_count, counts.recv_count};
  items.insert(items.end(), ranks, ranks + known);
  return distag_value_create_int64_list(items.data(), items.size(), out_info, err);
}

void Participant::keep(distag_reply* reply) {
  const std::lock_guard<std::mutex> lock(mutex_);
  replies_.emplace_back(reply);
}

void Participant::note_member(void* user_data, distag_worker*, const distag_member* member) {
  auto& self = *static_cast<Participant*>(user_data);
  const std::lock_guard<std::mutex> lock(self.mutex_);
  if (member->state == DISTAG_MEMBER_ALIVE) ++self.seen_[member->name];
  self.changed_.notify_all();
}

bool Participant::wait_until_seen(const std::string& name, int times) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(120), [&] { return seen_[name] >= times; });
}

void Participant::note_start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++starts_;
  changed_.notify_all();
}

bool Participant::wait_until_started(int others) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(120), [&] { return starts_ >= others; });
}

void Participant::release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_released_ = true;
  changed_.notify_all();
}

void Participant::wait_until_released() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return is_released_; });
}

int run_participant(const ParticipantOptions& options) {
  distag_error err = DISTAG_ERROR_INIT;
  Participant participant(options);
  participant.start(120 * DISTAG_SECOND, &err);
  if (err.code == DISTAG_OK && options.world_size < 0) {
    participant.wait_until_seen("A", 1);
    distag_call(participant.worker(), nullptr, "A", "started", nullptr, 0, nullptr, nullptr, &err);
    if (err.code == DISTAG_OK) participant.wait_until_released();
  }
  if (err.code == DISTAG_OK) participant.shutdown(DISTAG_FOREVER, nullptr, &err);
  if (err.code == DISTAG_OK) return 0;
  std::fprintf(stderr, "rank %d: %s: %s\n", options.rank, distag_status_get_name(err.code), err.message);
  return 1;
}

}  // namespace distag::testing
