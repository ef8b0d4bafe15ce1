// The work of the members while a fault strikes. The numbers are small and whole, so results are exact.
#include <poll.h>

#include <cstdio>
#include <map>
#include <new>
#include <stdexcept>
#include <vector>

#include "faults/fault_points.h"
#include "faults/member.h"

extern "C" {
#include "shortage/allocations.h"
}

namespace distag::faults {
namespace {

constexpr int64_t kTimeout = 120 * DISTAG_SECOND;
constexpr int64_t kPatience = 20 * DISTAG_SECOND;  // for what another member does within two

Tensor numbers(int64_t count, float first, distag_error* err) {
  std::vector<float> data(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = first + static_cast<float>(i % 1000);
  Tensor made;
  distag_tensor_create(data.data(), data.size() * sizeof(float), DISTAG_FLOAT32, &count, 1, made.out(), err);
  return made;
}

Tensor leaf(int64_t count, float first, distag_error* err) {
  Tensor made = numbers(count, first, err);
  distag_tensor_set_requires_grad(made.get(), 1, err);
  return made;
}

// Whether element i is factor * numbers(...)[i] + added.
bool is_multiple(distag_tensor* tensor, int64_t count, float first, float factor, float added) {
  if (distag_tensor_get_count(tensor) != static_cast<size_t>(count)) return false;
  std::vector<float> data(static_cast<size_t>(count));
  if (distag_tensor_copy_data(tensor, data.data(), data.size() * sizeof(float), nullptr) != DISTAG_OK) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (data[static_cast<size_t>(i)] != factor * (first + static_cast<float>(i % 1000)) + added) return false;
  }
  return true;
}

bool is_all(distag_tensor* tensor, int64_t count, float value) { return is_multiple(tensor, count, 0, 0, value); }

// Whether `got` is the failure that is right; another outcome becomes that of the operation.
bool is_failure(distag_status wanted, const distag_error& got, distag_error* err) {
  if (got.code == wanted) return true;
  if (err->code == DISTAG_OK) *err = got;
  return false;
}

Value text(const char* content, distag_error* err) {
  Value made;
  distag_value_create_text(content, made.out(), err);
  return made;
}

distag_tensor* tensor_of(distag_value* value, distag_error* err) {
  distag_tensor* tensor = nullptr;
  distag_value_get_tensor(value, &tensor, err);
  return tensor;
}

// ---- calls ----

bool add_there(Member& self, const char* to, int64_t count, distag_error* err) {
  const Tensor x = numbers(count, 1, err);
  distag_value* args[] = {distag_tensor_as_value(x.get()), distag_tensor_as_value(x.get())};
  Value answer;
  distag_call(self.worker(), nullptr, to, "add", args, 2, nullptr, answer.out(), err);
  return is_multiple(tensor_of(answer.get(), err), count, 1, 2, 0);
}

constexpr int64_t kLarge = 750000;  // 3 MB: goes in chunks

void call(Member& self, Record& record) {
  record.run("call of B", [&](distag_error* err) { return add_there(self, "B", 4, err); });
}

// For longer than a third of a lease in etcd, after which it is renewed.
void steady_calls(Member& self, Record& record) {
  const int64_t end = true_now() + 2 * DISTAG_SECOND;
  while (true_now() < end) {
    if (!record.run("call of B", [&](distag_error* err) { return add_there(self, "B", 4, err); })) return;
    if (!record.run("call of C", [&](distag_error* err) { return add_there(self, "C", 4, err); })) return;
    poll(nullptr, 0, 5);
  }
}

void call_with_large_values(Member& self, Record& record) {
  record.run("large call of B", [&](distag_error* err) { return add_there(self, "B", kLarge, err); });
}

void relay(Member& self, Record& record) {
  record.run("call of C through B", [&](distag_error* err) {
    const Tensor x = numbers(4, 1, err);
    const Value to = text("C", err), function = text("add", err);
    distag_value* args[] = {to.get(), function.get(), distag_tensor_as_value(x.get()), distag_tensor_as_value(x.get())};
    Value answer;
    distag_call(self.worker(), nullptr, "B", "relay", args, 4, nullptr, answer.out(), err);
    return is_multiple(tensor_of(answer.get(), err), 4, 1, 2, 0);
  });
}

// A header of more than 64 KiB.
void call_with_many_values(Member& self, Record& record) {
  record.run("long call of B", [&](distag_error* err) {
    std::vector<double> sent(6000), got(6001);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<double>(i) / 4;
    Value list, answer;
    size_t count = 0;
    distag_value_create_float64_list(sent.data(), sent.size(), list.out(), err);
    distag_value* arg = list.get();
    distag_call(self.worker(), nullptr, "B", "echo", &arg, 1, nullptr, answer.out(), err);
    distag_value_copy_float64s(answer.get(), got.data(), got.size(), &count, err);
    got.resize(count);
    return got == sent;
  });
}

void cancel(Member& self, Record& record) {
  record.run("call of B that is cancelled", [&](distag_error* err) {
    Future open;
    distag_call_async(self.worker(), nullptr, "B", "silence", nullptr, 0, nullptr, open.out(), err);
    if (!add_there(self, "B", 4, err)) return false;  // by now the other call is there
    distag_future_cancel(open.get());
    distag_error cancelled = DISTAG_ERROR_INIT;
    distag_future_wait(open.get(), kTimeout, &cancelled);
    return cancelled.code == DISTAG_E_CANCELLED;
  });
  record.run("call behind it", [&](distag_error* err) { return add_there(self, "B", 4, err); });
}

// B refuses what came damaged; the connection is made again, and the call runs once.
void damaged_call(Member& self, Record& record) {
  record.run("call of B that is damaged", [&](distag_error* err) {
    fault_points().damage("Call");  // which has values, and so a payload
    return add_there(self, "B", 4, err);
  });
}

// Two calls of B, the second of which waits for credit; more than once, as B may have begun the first one by then.
void calls_beyond_the_budget(Member& self, Record& record) {
  for (int i = 0; i < 5; ++i) {
    record.run("two large calls of B", [&](distag_error* err) {
      const Tensor x = numbers(kLarge, 1, err);
      distag_value* args[] = {distag_tensor_as_value(x.get()), distag_tensor_as_value(x.get())};
      Future first, second;
      distag_call_async(self.worker(), nullptr, "B", "add", args, 2, nullptr, first.out(), err);
      distag_call_async(self.worker(), nullptr, "B", "neg", args, 1, nullptr, second.out(), err);
      distag_future* both[] = {first.get(), second.get()};
      if (distag_wait_all(both, 2, kTimeout, err) != DISTAG_OK) return false;
      distag_value *sum = nullptr, *negative = nullptr;
      distag_future_get_value(first.get(), &sum, err);
      distag_future_get_value(second.get(), &negative, err);
      return is_multiple(tensor_of(sum, err), kLarge, 1, 2, 0) &&
             is_multiple(tensor_of(negative, err), kLarge, 1, -1, 0);
    });
  }
}

// ---- references ----

// A reference to a value on C, made by A, used by B.
void references(Member& self, Record& record) {
  Rref rref;
  record.run("value on C", [&](distag_error* err) {
    const Tensor x = numbers(4, 1, err);
    distag_value* arg = distag_tensor_as_value(x.get());
    distag_remote(self.worker(), nullptr, "C", "echo", &arg, 1, nullptr, rref.out(), err);
    return true;
  });
  record.run("its use on B", [&](distag_error* err) {
    const Tensor x = numbers(4, 1, err);
    distag_value* args[] = {distag_rref_as_value(rref.get()), distag_tensor_as_value(x.get())};
    Value answer;
    distag_call(self.worker(), nullptr, "B", "times", args, 2, nullptr, answer.out(), err);
    float squares[4] = {0};
    distag_tensor_copy_data(tensor_of(answer.get(), err), squares, sizeof squares, err);
    return squares[0] == 1 && squares[1] == 4 && squares[2] == 9 && squares[3] == 16;
  });
  rref = Rref();
  record.run("call of C behind it", [&](distag_error* err) { return add_there(self, "C", 4, err); });
}

// A reference to a value that was never made: A has no time to ask C for it, B passes on that it uses it, and C asks A
// what became of it.
void gone_reference(Member& self, Record& record) {
  Rref rref;
  record.run("value that C never hears of", [&](distag_error* err) {
    const Tensor x = numbers(4, 1, err);
    distag_value* arg = distag_tensor_as_value(x.get());
    distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
    options.timeout_ns = 1;
    distag_remote(self.worker(), nullptr, "C", "echo", &arg, 1, &options, rref.out(), err);
    return true;
  });
  record.run("its use on B", [&](distag_error* err) {
    const Tensor x = numbers(4, 1, err);
    distag_value* args[] = {distag_rref_as_value(rref.get()), distag_tensor_as_value(x.get())};
    Value answer;
    distag_error failure = DISTAG_ERROR_INIT;
    distag_call(self.worker(), nullptr, "B", "times", args, 2, nullptr, answer.out(), &failure);
    return is_failure(DISTAG_E_NOT_FOUND, failure, err);
  });
  rref = Rref();
  record.run("call of C behind it", [&](distag_error* err) { return add_there(self, "C", 4, err); });
}

// ---- passes ----

// x + x on C, asked for through B; the gradient of their sum is 2.
void pass(Member& self, Record& record, distag_backward_mode_type mode) {
  Context context;
  Tensor x;
  Value answer;
  record.run("forward through B and C", [&](distag_error* err) {
    x = leaf(4, 1, err);
    const Value to = text("C", err), function = text("add", err);
    distag_value* args[] = {to.get(), function.get(), distag_tensor_as_value(x.get()), distag_tensor_as_value(x.get())};
    distag_context_create(self.worker(), context.out(), err);
    distag_call(self.worker(), context.get(), "B", "relay", args, 4, nullptr, answer.out(), err);
    return is_multiple(tensor_of(answer.get(), err), 4, 1, 2, 0);
  });
  record.run("backward", [&](distag_error* err) {
    Tensor loss;
    Gradients gradients;
    distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
    options.mode = mode;
    distag_sum(tensor_of(answer.get(), err), nullptr, 0, 0, loss.out(), err);
    distag_tensor* root = loss.get();
    distag_backward(context.get(), &root, 1, &options, err);
    distag_get_gradients(context.get(), gradients.out(), err);
    return distag_gradients_get_count(gradients.get()) == 1 &&
           is_all(distag_gradients_find(gradients.get(), x.get()), 4, 2);
  });
  answer = Value();
  context = Context();
  record.run("call of B behind it", [&](distag_error* err) { return add_there(self, "B", 4, err); });
}

void planned_pass(Member& self, Record& record) { pass(self, record, DISTAG_BACKWARD_SMART); }
void fast_pass(Member& self, Record& record) { pass(self, record, DISTAG_BACKWARD_FAST); }

// The sum of more tensors than a record has links: the pass has to search.
void searched_pass(Member& self, Record& record) {
  constexpr size_t kLeaves = 120;
  Context context;
  std::vector<Tensor> leaves;
  Value answer;
  record.run("forward of many through B and C", [&](distag_error* err) {
    const Value to = text("C", err), function = text("sum_all", err);
    std::vector<distag_value*> args = {to.get(), function.get()};
    for (size_t i = 0; i < kLeaves; ++i) {
      leaves.push_back(leaf(2, static_cast<float>(i), err));
      args.push_back(distag_tensor_as_value(leaves.back().get()));
    }
    distag_context_create(self.worker(), context.out(), err);
    distag_call(self.worker(), context.get(), "B", "relay", args.data(), args.size(), nullptr, answer.out(), err);
    return true;
  });
  record.run("backward", [&](distag_error* err) {
    Tensor loss;
    Gradients gradients;
    distag_sum(tensor_of(answer.get(), err), nullptr, 0, 0, loss.out(), err);
    distag_tensor* root = loss.get();
    distag_backward(context.get(), &root, 1, nullptr, err);
    distag_get_gradients(context.get(), gradients.out(), err);
    bool right = distag_gradients_get_count(gradients.get()) == kLeaves;
    for (const Tensor& each : leaves) right &= is_all(distag_gradients_find(gradients.get(), each.get()), 2, 1);
    return right;
  });
  answer = Value();
  context = Context();
  record.run("call of B behind it", [&](distag_error* err) { return add_there(self, "B", 4, err); });
}

// The pass of another member than the creator of the context, which has to ask who holds it.
void pass_begun_by_b(Member& self, Record& record) {
  Context context;
  Tensor x;
  record.run("backward on B", [&](distag_error* err) {
    x = leaf(4, 1, err);
    Value answer;
    distag_value* arg = distag_tensor_as_value(x.get());
    distag_context_create(self.worker(), context.out(), err);
    distag_call(self.worker(), context.get(), "B", "backward", &arg, 1, nullptr, answer.out(), err);
    return true;
  });
  record.run("its gradients here", [&](distag_error* err) {
    Gradients gradients;
    distag_get_gradients(context.get(), gradients.out(), err);
    return is_all(distag_gradients_find(gradients.get(), x.get()), 4, 1);
  });
  context = Context();
  record.run("call of B behind it", [&](distag_error* err) { return add_there(self, "B", 4, err); });
}

// B waits for a gradient that never comes, as the loss does not depend on its answer: the initiator asks all until it
// is sure of that.
void pass_with_an_unused_answer(Member& self, Record& record) {
  Context context;
  Tensor x;
  Value unused;
  record.run("forward on B", [&](distag_error* err) {
    x = leaf(4, 1, err);
    distag_value* args[] = {distag_tensor_as_value(x.get()), distag_tensor_as_value(x.get())};
    distag_context_create(self.worker(), context.out(), err);
    distag_call(self.worker(), context.get(), "B", "add", args, 2, nullptr, unused.out(), err);
    return is_multiple(tensor_of(unused.get(), err), 4, 1, 2, 0);
  });
  record.run("backward of something else", [&](distag_error* err) {
    Tensor loss;
    distag_error failure = DISTAG_ERROR_INIT;
    distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
    options.mode = DISTAG_BACKWARD_FAST;
    distag_sum(x.get(), nullptr, 0, 0, loss.out(), err);
    distag_tensor* root = loss.get();
    distag_backward(context.get(), &root, 1, &options, &failure);
    return is_failure(DISTAG_E_UNREACHED_SEND, failure, err);
  });
  unused = Value();
  context = Context();
  record.run("call of B behind it", [&](distag_error* err) { return add_there(self, "B", 4, err); });
}

// Parameters 1, 2, 3, 4 on B and on C; with the gradient of sum(b * c) and a rate of 1 both become 0.
void optimizer_step(Member& self, Record& record) {
  Rref parameters[2];
  Context context;
  Tensor loss;
  Value answer;
  record.run("parameters", [&](distag_error* err) {
    const Tensor x = numbers(4, 1, err);
    distag_value* arg = distag_tensor_as_value(x.get());
    for (int i = 0; i < 2; ++i) {
      distag_remote(self.worker(), nullptr, i == 0 ? "B" : "C", "keep", &arg, 1, nullptr, parameters[i].out(), err);
    }
    return true;
  });
  record.run("forward", [&](distag_error* err) {
    const Tensor ones = numbers(1, 1, err);
    Value first;
    distag_context_create(self.worker(), context.out(), err);
    distag_value* args[] = {distag_rref_as_value(parameters[0].get()), distag_tensor_as_value(ones.get())};
    distag_call(self.worker(), context.get(), "B", "times", args, 2, nullptr, first.out(), err);
    distag_value* more[] = {distag_rref_as_value(parameters[1].get()), first.get()};
    distag_call(self.worker(), context.get(), "C", "times", more, 2, nullptr, answer.out(), err);
    distag_sum(tensor_of(answer.get(), err), nullptr, 0, 0, loss.out(), err);
    double sum = 0;
    distag_tensor_get_item(loss.get(), &sum, err);
    return sum == 30;
  });
  record.run("backward", [&](distag_error* err) {
    distag_tensor* root = loss.get();
    distag_backward(context.get(), &root, 1, nullptr, err);
    return true;
  });
  Optimizer optimizer;
  record.run("step", [&](distag_error* err) {
    distag_value* values[] = {distag_rref_as_value(parameters[0].get()), distag_rref_as_value(parameters[1].get())};
    distag_optimizer_create(self.worker(), "sgd", values, 2, optimizer.out(), err);
    distag_optimizer_set(optimizer.get(), "lr", 1, err);
    distag_optimizer_step(optimizer.get(), context.get(), nullptr, err);
    return true;
  });
  record.run("fetch of the parameters", [&](distag_error* err) {
    bool right = true;
    for (const Rref& parameter : parameters) {
      Value now;
      distag_rref_fetch(parameter.get(), nullptr, nullptr, now.out(), err);
      right &= is_all(tensor_of(now.get(), err), 4, 0);
    }
    return right;
  });
}

// ---- what all members do together ----

Mesh mesh_of_all(Member& self, Record& record) {
  Mesh mesh;
  record.run("mesh of all", [&](distag_error* err) {
    const int32_t ranks[] = {0, 1, 2};
    const int64_t shape = kMembers;
    const char* const axis = "x";
    distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
    distag_mesh_create(self.worker(), ranks, kMembers, &shape, &axis, 1, &options, mesh.out(), err);
    return true;
  });
  return mesh;
}

bool sum_over_all(const Mesh& mesh, int64_t count, distag_error* err) {
  const Tensor x = numbers(count, 1, err);
  Tensor sum;
  distag_collective(mesh.get(), DISTAG_ALL_REDUCE, nullptr, x.get(), nullptr, sum.out(), err);
  return is_multiple(sum.get(), count, 1, kMembers, 0);
}

void collectives(Member& self, Record& record) {
  const Mesh mesh = mesh_of_all(self, record);
  record.run("sum over all", [&](distag_error* err) { return sum_over_all(mesh, 4, err); });
  record.run("large sum over all", [&](distag_error* err) { return sum_over_all(mesh, 2 * kLarge, err); });
}

// The messages of a kind that come from now on.
class Arrivals {
 public:
  explicit Arrivals(const char* kind) : kind_(kind), before_(all()) {}
  void wait_for(int count) const {
    const int64_t end = true_now() + kPatience;
    while (all() < before_ + count && true_now() < end) poll(nullptr, 0, 1);
  }

 private:
  int all() const { return fault_points().steps()[{kind_, Way::kArrived}]; }

  const char* const kind_;
  const int before_;
};

// C adds up more elements than the others, once it has a part of one of them: it sees first that their calls differ.
// All go on with another mesh.
void collectives_that_differ(Member& self, Record& record) {
  const Arrivals parts("Part");
  const Mesh mesh = mesh_of_all(self, record);
  if (self.name() == "C") parts.wait_for(1);
  record.run("sums that differ", [&](distag_error* err) {
    distag_error failure = DISTAG_ERROR_INIT;
    static_cast<void>(sum_over_all(mesh, self.name() == "C" ? 8 : 4, &failure));
    return is_failure(DISTAG_E_DIVERGED, failure, err);
  });
  const Mesh next = mesh_of_all(self, record);
  record.run("sum over all", [&](distag_error* err) { return sum_over_all(next, 4, err); });
}

// C joins in once both others have asked it where it is.
void late_collective(Member& self, Record& record) {
  const Arrivals questions("Where");
  const Mesh mesh = mesh_of_all(self, record);
  if (self.name() == "C") questions.wait_for(kMembers - 1);
  record.run("sum over all", [&](distag_error* err) { return sum_over_all(mesh, 4, err); });
}

void gather(Member& self, Record& record) {
  record.run("all_gather", [&](distag_error* err) {
    Value own, all;
    distag_value_create_text(self.name().c_str(), own.out(), err);
    distag_worker_all_gather(self.worker(), own.get(), nullptr, 0, kTimeout, all.out(), err);
    return distag_value_get_count(all.get()) == kMembers;
  });
}

void take_stage(Member& self, Record& record) {
  record.run("mesh of the stage", [&](distag_error* err) {
    self.take_stage(err);
    return true;
  });
}

// x * (1, 2, 3, 4), of which B and C compute a half each, by `function`.
Tensor whole_of_stage(Member& self, const Context& context, const char* function, const Tensor& x, distag_error* err) {
  distag_value* arg = distag_tensor_as_value(x.get());
  Future answers[2];
  distag_tensor* parts[2] = {nullptr, nullptr};
  Tensor whole;
  for (int i = 0; i < 2; ++i) {
    distag_call_async(self.worker(), context.get(), i == 0 ? "B" : "C", function, &arg, 1, nullptr, answers[i].out(),
                      err);
  }
  for (int i = 0; i < 2; ++i) {
    distag_value* part = nullptr;
    if (distag_future_wait(answers[i].get(), kTimeout, err) != DISTAG_OK) return whole;
    distag_future_get_value(answers[i].get(), &part, err);
    parts[i] = tensor_of(part, err);
  }
  distag_concat(parts, 2, 0, whole.out(), err);
  return whole;
}

bool is_product_of_stage(const Tensor& whole, distag_error* err) {
  float squares[4] = {0};
  distag_tensor_copy_data(whole.get(), squares, sizeof squares, err);
  return squares[0] == 1 && squares[1] == 4 && squares[2] == 9 && squares[3] == 16;
}

// The gradient of the sum of each whole is (1, 2, 3, 4).
bool backward_of_stage(const Context& context, const std::vector<Tensor>& wholes, const Tensor& x, distag_error* err) {
  std::vector<Tensor> losses(wholes.size());
  std::vector<distag_tensor*> roots;
  for (size_t i = 0; i < wholes.size(); ++i) {
    distag_sum(wholes[i].get(), nullptr, 0, 0, losses[i].out(), err);
    roots.push_back(losses[i].get());
  }
  Gradients gradients;
  distag_backward(context.get(), roots.data(), roots.size(), nullptr, err);
  distag_get_gradients(context.get(), gradients.out(), err);
  return is_multiple(distag_gradients_find(gradients.get(), x.get()), 4, 1, static_cast<float>(wholes.size()), 0);
}

void stages_by(Member& self, Record& record, const std::vector<const char*>& functions) {
  Context context;
  Tensor x;
  std::vector<Tensor> wholes;
  record.run("forward on both members of the stage", [&](distag_error* err) {
    x = leaf(4, 1, err);
    distag_context_create(self.worker(), context.out(), err);
    bool right = true;
    for (const char* function : functions) {
      wholes.push_back(whole_of_stage(self, context, function, x, err));
      if (err->code != DISTAG_OK) return false;
      right &= is_product_of_stage(wholes.back(), err);
    }
    return right;
  });
  record.run("backward", [&](distag_error* err) { return backward_of_stage(context, wholes, x, err); });
}

void stages(Member& self, Record& record) { stages_by(self, record, {"stage"}); }
// Two lines of the mesh are in one pass: its first member has to hear which of them may go on.
void stages_on_two_lines(Member& self, Record& record) { stages_by(self, record, {"stage", "stage_on_line"}); }

using Phase = void (*)(Member&, Record&);

const std::map<std::string, Phase>& phases() {
  static const std::map<std::string, Phase> all = {{"call", call},
                                                   {"steady", steady_calls},
                                                   {"large", call_with_large_values},
                                                   {"relay", relay},
                                                   {"long", call_with_many_values},
                                                   {"cancel", cancel},
                                                   {"damaged", damaged_call},
                                                   {"credit", calls_beyond_the_budget},
                                                   {"references", references},
                                                   {"gone", gone_reference},
                                                   {"planned", planned_pass},
                                                   {"searched", searched_pass},
                                                   {"fast", fast_pass},
                                                   {"holders", pass_begun_by_b},
                                                   {"unreached", pass_with_an_unused_answer},
                                                   {"optimizer", optimizer_step},
                                                   {"mesh", collectives},
                                                   {"diverged", collectives_that_differ},
                                                   {"late", late_collective},
                                                   {"gather", gather},
                                                   {"take_stage", take_stage},
                                                   {"stages", stages},
                                                   {"lines", stages_on_two_lines}};
  return all;
}

}  // namespace

bool Record::run(const char* what, const std::function<bool(distag_error*)>& run) {
  if (!operations_.empty() && !operations_.back()["right"]) return false;
  distag_error err = DISTAG_ERROR_INIT;
  const int64_t begin = true_now();
  bool right = false;
  try {
    right = run(&err);
  } catch (const std::bad_alloc&) {
    err.code = DISTAG_E_OUT_OF_MEMORY;
    std::snprintf(err.message, sizeof err.message, "the program itself found no memory");
  }
  // This thread may have run the loop when the memory was refused: then that is over as well.
  allocations_stop_for_this_thread();
  operations_.push_back({{"what", what},
                         {"status", distag_status_get_name(err.code)},
                         {"message", err.message},
                         {"begin", begin},
                         {"end", true_now()},
                         {"right", right && err.code == DISTAG_OK}});
  return operations_.back()["right"];
}

nlohmann::json run_phase(Member& member, const std::string& phase) {
  Record record;
  phases().at(phase)(member, record);
  return record.operations();
}

nlohmann::json check_with(Member& member, const std::vector<std::string>& others) {
  Record record;
  for (const std::string& other : others) {
    record.run("call afterwards", [&](distag_error* err) { return add_there(member, other.c_str(), 4, err); });
    record.run("pass afterwards", [&](distag_error* err) {
      const Tensor x = leaf(4, 1, err);
      Tensor loss;
      Context context;
      Value answer;
      Gradients gradients;
      distag_value* args[] = {distag_tensor_as_value(x.get()), distag_tensor_as_value(x.get())};
      distag_context_create(member.worker(), context.out(), err);
      distag_call(member.worker(), context.get(), other.c_str(), "add", args, 2, nullptr, answer.out(), err);
      distag_sum(tensor_of(answer.get(), err), nullptr, 0, 0, loss.out(), err);
      distag_tensor* root = loss.get();
      distag_backward(context.get(), &root, 1, nullptr, err);
      distag_get_gradients(context.get(), gradients.out(), err);
      return is_all(distag_gradients_find(gradients.get(), x.get()), 4, 2);
    });
  }
  return record.operations();
}

}  // namespace distag::faults
