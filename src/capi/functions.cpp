// Functions: what a worker offers, and how a call looks to them.

#include "base/host_code.h"
#include "capi/context.h"
#include "capi/invocation.h"
#include "capi/rref.h"
#include "capi/struct_check.h"
#include "capi/taken_calls.h"

using namespace distag;
using namespace distag::capi;

// NULL means that nothing is recorded; a lack of memory must not look like that.
distag_context* distag_invocation::context() {
  const ReserveScope scope(worker_.reserve());
  return context_.get([this]() -> distag_context* {
    std::shared_ptr<Context> found =
        call_->context() ? worker_.core().dautograd().find_context(call_->context()) : nullptr;
    return found == nullptr ? nullptr : new distag_context(std::move(found), &worker_, call_->trace_parent());
  });
}

distag_value* distag_invocation::arg(size_t index) {
  const Values& args = call_->args();
  if (index >= args.size()) return nullptr;
  const ReserveScope scope(worker_.reserve());
  return args_[index].get([&args, index] { return make_value(args[index]); });
}

distag_value& distag_invocation::need_arg(size_t index, ValueKind kind) {
  const char* wanted = kind_name(kind);
  distag_value* found = arg(index);
  if (found == nullptr) {
    fail(Status::kInvalidArgument, "function \"{}\": argument {} is wanted as {}, but only {} came", call_->function(),
         index, wanted, call_->args().size());
  }
  if (const auto reference = as_rref(found->get())) {
    if (!reference->is_owner() && reference->owner_peer()->name == worker_.core().name()) {
      fail(Status::kPeerRestarted,
           "function \"{}\": argument {} refers to a value that this worker had before it was restarted",
           call_->function(), index);
    }
    if (!reference->is_owner()) {
      fail(Status::kInvalidArgument,
           "function \"{}\": argument {} is wanted as {}, but refers to a value of worker \"{}\": {}",
           call_->function(), index, wanted, reference->owner_peer()->name,
           kind == ValueKind::kObject ? "call a function there" : "fetch it first");
    }
    found = referred_[index].get([&reference] { return make_value(reference->owned()->value()); });
  }
  if (found->get().kind() != kind) {
    fail(Status::kInvalidArgument, "function \"{}\": argument {} is wanted as {}, but {} came", call_->function(),
         index, wanted, kind_name(found->get().kind()));
  }
  return *found;
}

namespace distag::capi {

Function make_function(distag_worker& worker, std::shared_ptr<HostFunction> function, distag_function run) {
  return [&worker, function, run](Invocation& call) {
    const CallbackScope scope(&worker.hosted());
    const CallbackScope within(function.get(), &call.trace_parent());
    const Lent<distag_invocation> lent(new distag_invocation(worker, call.shared_from_this()));
    distag_error err = DISTAG_ERROR_INIT;
    const distag_status status = call_host([&] { return run(function->data.get(), lent.get(), &err); });
    if (status != DISTAG_OK) throw callback_error(status, err, fmt::format("function \"{}\"", function->name));
  };
}

}  // namespace distag::capi

namespace {

std::string need_function_name(const char* name) {
  std::string text = need_text(name, "name");
  if (text.starts_with("distag.")) {
    refuse(Status::kInvalidArgument, "\"{}\": names that begin with \"distag.\" are of the library's own", text);
  }
  return text;
}

// The workers that may call it; empty: all. Names mean something only if each worker has a key of its own.
std::vector<std::string> read_callers(distag_worker& worker, const distag_function_options* options) {
  const distag_function_options given = read_struct(options, "distag_function_options");
  need_zero(given.reserved, "distag_function_options.reserved");
  if (given.callers == nullptr && given.caller_count == 0) return {};
  if (!worker.hosted().threaded().has_worker_keys()) {
    refuse(Status::kUnsupported, "callers: a name proves nothing where workers have no key each (secret_key)");
  }
  std::vector<std::string> callers = need_worker_names(given.callers, given.caller_count, "callers");
  if (callers.empty()) refuse(Status::kInvalidArgument, "caller_count is 0: leave callers NULL for all");
  return callers;
}

// Checks an error that says how a call failed.
void check_told(const distag_error* error) {
  if (error == nullptr || is_usable(error)) return;
  refuse(Status::kInvalidArgument, "struct_size of error is {}, which no version has", error->struct_size);
}

void finish(PendingReply& reply, const distag_value* value, const distag_error* error, const char* what) {
  const bool failed = error != nullptr && error->code != DISTAG_OK;
  const bool first = failed ? reply.fail(callback_error(error->code, *error, what))
                            : reply.finish(value == nullptr ? Value() : value->get());
  if (!first) {
    refuse(Status::kInvalidState, "the reply is finished already, its function failed, or its worker was shut down");
  }
}

}  // namespace

distag_status distag_worker_register(distag_worker* worker, const char* name, distag_function function, void* user_data,
                                     distag_deleter destroy, const distag_function_options* options,
                                     distag_error* err) {
  GivenData data(user_data, destroy);
  return guard(__func__, err, [&] {
    distag_worker& live = need_worker(worker);
    std::string text = need_function_name(name);
    if (function == nullptr) refuse_null("function");
    std::vector<std::string> callers = read_callers(live, options);
    auto made = std::make_shared<HostFunction>(HostFunction{std::move(text), std::move(data)});
    live.register_function(made, make_function(live, made, function), std::move(callers));
  });
}

distag_status distag_worker_offer(distag_worker* worker, const char* name, uint64_t tag,
                                  const distag_function_options* options, distag_error* err) {
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    std::string text = need_function_name(name);
    std::vector<std::string> callers = read_callers(live, options);
    live.need_host();
    check_takes_events(live);
    auto made = std::make_shared<HostFunction>(HostFunction{std::move(text), HostData(nullptr, nullptr)});
    live.register_function(made, make_offer(live, made, tag), std::move(callers));
  });
}

distag_status distag_worker_unregister(distag_worker* worker, const char* name, int64_t timeout_ns, distag_error* err) {
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    live.unregister_function(need_text(name, "name"), need_timeout(timeout_ns, "timeout_ns"));
  });
}

distag_worker* distag_invocation_get_worker(distag_invocation* invocation) {
  return guard_or<distag_worker*>(nullptr, [invocation]() -> distag_worker* {
    distag_invocation* live = peek(invocation);
    return live == nullptr ? nullptr : live->worker().lent();
  });
}

distag_context* distag_invocation_get_context(distag_invocation* invocation) {
  return guard_or<distag_context*>(nullptr, [invocation]() -> distag_context* {
    distag_invocation* live = peek(invocation);
    return live == nullptr ? nullptr : live->context();
  });
}

const char* distag_invocation_get_caller(distag_invocation* invocation) {
  distag_invocation* live = peek(invocation);
  return live == nullptr ? nullptr : live->call().caller().c_str();
}

const char* distag_invocation_get_function(distag_invocation* invocation) {
  distag_invocation* live = peek(invocation);
  return live == nullptr ? nullptr : live->call().function().c_str();
}

const char* distag_invocation_get_traceparent(distag_invocation* invocation) {
  distag_invocation* live = peek(invocation);
  if (live == nullptr || live->call().trace_parent() == nullptr) return nullptr;
  return live->call().trace_parent()->c_str();
}

int64_t distag_invocation_get_time_left(distag_invocation* invocation) {
  return guard_or<int64_t>(0, [invocation]() -> int64_t {
    distag_invocation* live = peek(invocation);
    return live == nullptr ? 0 : live->call().time_left();
  });
}

int32_t distag_invocation_is_cancelled(distag_invocation* invocation) {
  return guard_or<int32_t>(0, [invocation] {
    distag_invocation* live = peek(invocation);
    return live != nullptr && live->call().is_cancelled() ? 1 : 0;
  });
}

size_t distag_invocation_get_arg_count(distag_invocation* invocation) {
  distag_invocation* live = peek(invocation);
  return live == nullptr ? 0 : live->call().args().size();
}

distag_value* distag_invocation_get_arg(distag_invocation* invocation, size_t index) {
  return guard_or<distag_value*>(nullptr, [invocation, index]() -> distag_value* {
    distag_invocation* live = peek(invocation);
    return live == nullptr ? nullptr : live->arg(index);
  });
}

distag_status distag_invocation_get_tensor(distag_invocation* invocation, size_t index, distag_tensor** out_tensor,
                                           distag_error* err) {
  clear(out_tensor);
  return guard(__func__, err, [=] {
    distag_invocation& live = need(invocation, "invocation");
    need_pointer(out_tensor, "out_tensor");
    *out_tensor = static_cast<distag_tensor*>(&live.need_arg(index, ValueKind::kTensor));
  });
}

distag_status distag_invocation_return(distag_invocation* invocation, distag_value* value, distag_error* err) {
  return guard(__func__, err, [=] {
    check_present({invocation, value}, {"invocation", "value"});
    distag_invocation& live = need(invocation, "invocation");
    live.call().set_result(need(value, "value").get());
  });
}

distag_status distag_invocation_defer(distag_invocation* invocation, distag_reply** out_reply, distag_error* err) {
  clear(out_reply);
  return guard(__func__, err, [=] {
    distag_invocation& live = need(invocation, "invocation");
    need_pointer(out_reply, "out_reply");
    *out_reply = new distag_reply(live.call().defer());
  });
}

void distag_reply_retain(distag_reply* reply) { retain_handle(reply); }
void distag_reply_release(distag_reply* reply) { release_handle(reply); }

distag_status distag_reply_finish(distag_reply* reply, distag_value* value, const distag_error* error,
                                  distag_error* err) {
  return guard(__func__, err, [=] {
    distag_reply& live = need(reply, "reply");
    const distag_value* answer = need_or_null(value, "value");
    check_told(error);
    finish(live.pending(), answer, error, "a deferred reply");
  });
}

distag_status distag_invocation_finish(distag_invocation* invocation, distag_value* value, const distag_error* error,
                                       distag_error* err) {
  return guard(__func__, err, [=] {
    distag_invocation& live = need(invocation, "invocation");
    const distag_value* answer = need_or_null(value, "value");
    check_told(error);
    if (live.reply() == nullptr) {
      refuse(Status::kInvalidState, "the invocation is lent to its function, which answers by its return");
    }
    finish(*live.reply(), answer, error, "an event");
    live.worker().taken_calls().end(live);
  });
}

int32_t distag_reply_is_cancelled(distag_reply* reply) {
  return guard_or<int32_t>(0, [reply] {
    distag_reply* live = peek(reply);
    return live != nullptr && live->pending().is_cancelled() ? 1 : 0;
  });
}
