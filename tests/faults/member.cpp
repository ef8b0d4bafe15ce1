#include "faults/member.h"

#include <poll.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "faults/fault_points.h"

namespace distag::faults {
namespace {

constexpr int64_t kCallTimeout = 120 * DISTAG_SECOND;
constexpr uint64_t kBudget = 4u << 20;  // of requests: the second large call waits for the first

distag_status answer(distag_invocation* invocation, distag_value* value, distag_error* err) {
  distag_invocation_return(invocation, value, err);
  return err->code;
}

distag_call_options within(distag_invocation* invocation) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.within = invocation;
  return options;
}

distag_status add(void*, distag_invocation* invocation, distag_error* err) {
  distag_tensor *a = nullptr, *b = nullptr;
  Tensor sum;
  distag_invocation_get_tensor(invocation, 0, &a, err);
  distag_invocation_get_tensor(invocation, 1, &b, err);
  distag_add(a, b, sum.out(), err);
  return answer(invocation, distag_tensor_as_value(sum.get()), err);
}

distag_status times(void*, distag_invocation* invocation, distag_error* err) {
  distag_tensor *a = nullptr, *b = nullptr;
  Tensor product;
  Value fetched;
  distag_value* const first = distag_invocation_get_arg(invocation, 0);
  if (distag_value_get_kind(first) == DISTAG_VALUE_RREF) {
    distag_rref* rref = nullptr;
    const distag_call_options options = within(invocation);
    distag_value_get_rref(first, &rref, err);
    distag_rref_fetch(rref, distag_invocation_get_context(invocation), &options, fetched.out(), err);
    distag_value_get_tensor(fetched.get(), &a, err);
  } else {
    distag_invocation_get_tensor(invocation, 0, &a, err);
  }
  distag_invocation_get_tensor(invocation, 1, &b, err);
  distag_mul(a, b, product.out(), err);
  return answer(invocation, distag_tensor_as_value(product.get()), err);
}

distag_status echo(void*, distag_invocation* invocation, distag_error* err) {
  return answer(invocation, distag_invocation_get_arg(invocation, 0), err);
}

distag_status keep(void*, distag_invocation* invocation, distag_error* err) {
  distag_tensor* x = nullptr;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_tensor_set_requires_grad(x, 1, err);
  return answer(invocation, distag_tensor_as_value(x), err);
}

distag_status sum_all(void*, distag_invocation* invocation, distag_error* err) {
  distag_tensor* next = nullptr;
  Tensor sum;
  distag_invocation_get_tensor(invocation, 0, &next, err);
  distag_mul_scalar(next, 1, sum.out(), err);
  for (size_t i = 1; i < distag_invocation_get_arg_count(invocation); ++i) {
    Tensor before = std::move(sum);
    distag_invocation_get_tensor(invocation, i, &next, err);
    distag_add(before.get(), next, sum.out(), err);
  }
  return answer(invocation, distag_tensor_as_value(sum.get()), err);
}

distag_status relay(void*, distag_invocation* invocation, distag_error* err) {
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
  distag_call(distag_invocation_get_worker(invocation), distag_invocation_get_context(invocation), to, function,
              args.data(), args.size(), &options, result.out(), err);
  return answer(invocation, result.get(), err);
}

distag_status silence(void* user_data, distag_invocation* invocation, distag_error* err) {
  Reply reply;
  distag_invocation_defer(invocation, reply.out(), err);
  distag_reply_retain(reply.get());
  static_cast<Member*>(user_data)->keep(reply.get());
  return err->code;
}

distag_status backward(void*, distag_invocation* invocation, distag_error* err) {
  distag_tensor* x = nullptr;
  Tensor loss;
  Value done;
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  options.mode = DISTAG_BACKWARD_FAST;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_sum(x, nullptr, 0, 0, loss.out(), err);
  distag_tensor* root = loss.get();
  distag_backward(distag_invocation_get_context(invocation), &root, 1, &options, err);
  distag_value_create_text("done", done.out(), err);
  return answer(invocation, done.get(), err);
}

distag_status stage(void* user_data, distag_invocation* invocation, distag_error* err) {
  return static_cast<Member*>(user_data)->run_stage(invocation, false, err);
}

distag_status stage_on_line(void* user_data, distag_invocation* invocation, distag_error* err) {
  return static_cast<Member*>(user_data)->run_stage(invocation, true, err);
}

nlohmann::json outcome(const distag_error& err) {
  return {{"status", distag_status_get_name(err.code)}, {"message", err.message}};
}

}  // namespace

std::string name_of(int rank) { return std::string(1, static_cast<char>('A' + rank)); }

Member::Member(const MemberOptions& given) : name_(name_of(given.rank)) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  security.allow_insecure = given.allow_insecure ? 1 : 0;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.rank = given.rank;
  options.world_size = kMembers;
  options.name = name_.c_str();
  options.lease_ns = given.lease_ns;
  options.call_timeout_ns = kCallTimeout;
  options.max_in_flight_bytes = kBudget;
  options.rendezvous = given.rendezvous.c_str();
  options.bind = given.bind.empty() ? nullptr : given.bind.c_str();
  options.security = &security;
  options.user_data = this;
  options.on_member = note_member;
  distag_worker_create(&options, worker_.out(), &err);
  const std::pair<const char*, distag_function> functions[] = {
      {"add", add},           {"times", times},
      {"echo", echo},         {"keep", faults::keep},
      {"relay", relay},       {"sum_all", sum_all},
      {"silence", silence},   {"stage", stage},
      {"backward", backward}, {"stage_on_line", stage_on_line}};
  for (const auto& [name, function] : functions) {
    distag_worker_register(worker_.get(), name, function, this, nullptr, nullptr, &err);
  }
  if (err.code != DISTAG_OK) throw std::runtime_error(err.message);
}

void Member::note_member(void* user_data, distag_worker*, const distag_member* member) {
  auto& self = *static_cast<Member*>(user_data);
  const std::lock_guard<std::mutex> lock(self.mutex_);
  if (member->state == DISTAG_MEMBER_LOST) self.lost_[member->name] = true_now();
  self.changed_.notify_all();
}

int64_t Member::wait_until_told(const std::string& name, int64_t timeout_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return lost_.contains(name); });
  return lost_[name];
}

nlohmann::json Member::start(int64_t timeout_ns) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_start(worker_.get(), timeout_ns, &err);
  return outcome(err);
}

nlohmann::json Member::stop(int64_t timeout_ns) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_shutdown(worker_.get(), timeout_ns, nullptr, &err);
  drop_replies();
  stage_weight_ = Tensor();
  stage_line_ = Mesh();
  stage_mesh_ = Mesh();
  worker_ = testing::Worker();
  return outcome(err);
}

nlohmann::json Member::held() {
  distag_stats stats = DISTAG_STATS_INIT;
  distag_worker_get_stats(worker_.get(), &stats, nullptr);
  nlohmann::json held = nlohmann::json::object();
  const std::pair<const char*, uint64_t> counts[] = {
      {"contexts", stats.contexts},       {"passes", stats.passes_open},    {"calls", stats.calls_open},
      {"rrefs owned", stats.rrefs_owned}, {"rrefs used", stats.rrefs_used}, {"forks", stats.rref_forks},
      {"futures", stats.futures_open},    {"bytes", stats.bytes_in_flight}};
  for (const auto& [name, count] : counts) {
    if (count != 0) held[name] = count;
  }
  return held;
}

nlohmann::json Member::settle(int64_t timeout_ns) {
  drop_replies();
  const int64_t deadline = true_now() + timeout_ns;
  nlohmann::json now = held();
  while (!now.empty() && true_now() < deadline) {
    poll(nullptr, 0, 2);  // no event tells: looked at again and again
    now = held();
  }
  return now;
}

void Member::take_stage(distag_error* err) {
  const int32_t ranks[] = {1, 2};
  const int64_t shape = 2, count = 4;
  const char* const axis = "x";
  const float weight[] = {1, 2, 3, 4};
  distag_mesh_create(worker_.get(), ranks, 2, &shape, &axis, 1, nullptr, stage_mesh_.out(), err);
  distag_mesh_open_line(stage_mesh_.get(), "line", stage_line_.out(), err);
  distag_tensor_create(weight, sizeof weight, DISTAG_FLOAT32, &count, 1, stage_weight_.out(), err);
  distag_tensor_mark_sharding(stage_weight_.get(), stage_mesh_.get(), "('x',)", -1, err);
}

distag_status Member::run_stage(distag_invocation* invocation, bool is_on_line, distag_error* err) {
  distag_mesh* const mesh = is_on_line ? stage_line_.get() : stage_mesh_.get();
  distag_tensor* given = nullptr;
  Tensor x, y, part;
  const int64_t count = 4;
  distag_invocation_get_tensor(invocation, 0, &given, err);
  distag_tensor_from_local(mesh, given, "(None,)", &count, 1, "(None,) sum('x')", x.out(), err);
  distag_mul(x.get(), stage_weight_.get(), y.out(), err);
  distag_tensor_to_local(y.get(), nullptr, part.out(), err);
  return answer(invocation, distag_tensor_as_value(part.get()), err);
}

void Member::drop_replies() {
  std::vector<Reply> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(replies_);
}

void Member::keep(distag_reply* reply) {
  const std::lock_guard<std::mutex> lock(mutex_);
  replies_.emplace_back(reply);
}

}  // namespace distag::faults
