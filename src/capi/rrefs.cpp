// Remote references, and the objects of the host that they make reachable.

#include <utility>

#include "base/host_callback.h"
#include "base/lead.h"
#include "base/wait_or_cancel.h"
#include "capi/call_options.h"
#include "capi/call_request.h"
#include "capi/context.h"
#include "capi/future.h"
#include "capi/invocation.h"
#include "capi/rref.h"

using namespace distag;
using namespace distag::capi;

distag_rref::distag_rref(Value value)
    : distag_value(Kind::kRref, std::move(value)),
      core_(as_rref(get())),
      worker_(std::static_pointer_cast<WorkerLink>(core_->host())->get()) {}

distag_worker& distag_rref::worker() const {
  if (!worker_) refuse(Status::kInvalidState, "the worker of the reference has ended");
  worker_->check_up();
  return *worker_;
}

const char* distag_rref::owner_name() const {
  if (!core_->is_owner()) return core_->owner_peer()->name.c_str();
  return worker_ ? worker_->hosted().name() : nullptr;
}

distag_value* distag_rref::local() {
  return local_.get([this] { return make_value(core_->owned()->value()); });
}

namespace {

FetchOptions make_fetch_options(const distag_rref& rref, distag_context* context, const distag_call_options* given) {
  FetchOptions made;
  made.context = need_context_of(rref.worker(), context);
  CallOptions options = read_call_options(given, &rref.worker(), context);
  made.timeout = options.timeout;
  made.within = std::move(options.within);
  made.label = std::move(options.label);
  made.trace_parent = std::move(options.trace_parent);
  return made;
}

// The pointer of an object, whose type has to be the one the caller knows.
void* need_object(const Value& value, const std::string& type) {
  const HostObject& object = *value.as_object();
  if (object.type != type) {
    refuse(Status::kInvalidArgument, "the object is of type \"{}\", not \"{}\"", object.type, type);
  }
  return object.pointer;
}

}  // namespace

void distag_rref_retain(distag_rref* rref) { retain_handle(rref); }
void distag_rref_release(distag_rref* rref) { release_handle(rref); }
distag_value* distag_rref_as_value(distag_rref* rref) { return rref; }

// ---- objects ----

distag_status distag_value_create_object(const char* type, void* object, distag_deleter destroy,
                                         distag_value** out_value, distag_error* err) {
  GivenData data(object, destroy);
  clear(out_value);
  return guard(__func__, err, [&] {
    need_pointer(out_value, "out_value");
    std::string name = need_text(type, "type");
    Task end = [held = HostData(std::move(data))]() mutable { held.run_destroy(); };
    *out_value = make_value(Value(std::make_shared<HostObject>(std::move(name), object, std::move(end))));
  });
}

distag_status distag_value_get_object(distag_value* value, const char* type, void** out_object, distag_error* err) {
  clear(out_object);
  return guard(__func__, err, [=] {
    const distag_value& live = need(value, "value");
    need_pointer(out_object, "out_object");
    *out_object = need_object(live.get(), need_text(type, "type"));
  });
}

distag_status distag_invocation_get_object(distag_invocation* invocation, size_t index, const char* type,
                                           void** out_object, distag_error* err) {
  clear(out_object);
  return guard(__func__, err, [=] {
    distag_invocation& live = need(invocation, "invocation");
    need_pointer(out_object, "out_object");
    const std::string wanted = need_text(type, "type");
    const Value& value = live.need_arg(index, ValueKind::kObject).get();
    try {
      *out_object = need_object(value, wanted);
    } catch (Error& error) {
      throw error.add_context(fmt::format("function \"{}\": argument {}", live.call().function(), index));
    }
  });
}

// ---- references ----

distag_status distag_value_get_rref(distag_value* value, distag_rref** out_rref, distag_error* err) {
  clear(out_rref);
  return guard(__func__, err, [=] {
    distag_value& live = need(value, "value");
    need_pointer(out_rref, "out_rref");
    live.get().as_external();  // throws for another kind
    *out_rref = static_cast<distag_rref*>(live.twin());
  });
}

distag_status distag_rref_create(distag_worker* worker, distag_value* value, distag_rref** out_rref,
                                 distag_error* err) {
  clear(out_rref);
  return guard(__func__, err, [=] {
    check_present({worker, value}, {"worker", "value"});
    distag_worker& live = need_worker(worker);
    const Value& shared = need(value, "value").get();
    need_pointer(out_rref, "out_rref");
    live.check_up();
    *out_rref = new distag_rref(Value(std::shared_ptr<ExternalValue>(live.core().rrefs().create(shared))));
  });
}

distag_status distag_remote(distag_worker* worker, distag_context* context, const char* to, const char* function,
                            distag_value* const* args, size_t arg_count, const distag_call_options* options,
                            distag_rref** out_rref, distag_error* err) {
  clear(out_rref);
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    CallRequest request = make_call_request(live, {context, to, function, args, arg_count, options});
    need_pointer(out_rref, "out_rref");
    *out_rref = new distag_rref(Value(std::shared_ptr<ExternalValue>(live.core().rrefs().remote(std::move(request)))));
  });
}

distag_status distag_rref_fetch(distag_rref* rref, distag_context* context, const distag_call_options* options,
                                distag_value** out_value, distag_error* err) {
  clear(out_value);
  return guard(__func__, err, [=] {
    // Held: other threads may release their references during the wait.
    const auto held = Ref<distag_rref>::share(&need(rref, "rref"));
    need_pointer(out_value, "out_value");
    FetchOptions made = make_fetch_options(*held, context, options);
    check_can_wait();
    made.has_time = true;
    const Lead lead(held->worker().core().loop());
    const auto future = held->worker().core().rrefs().fetch(held->core(), std::move(made));
    wait_or_cancel(*future);
    *out_value = make_value(future->value());
  });
}

distag_status distag_rref_fetch_async(distag_rref* rref, distag_context* context, const distag_call_options* options,
                                      distag_future** out_future, distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    distag_rref& live = need(rref, "rref");
    FetchOptions made = make_fetch_options(live, context, options);
    need_pointer(out_future, "out_future");
    distag_worker& worker = live.worker();
    *out_future = new distag_future(worker.core().rrefs().fetch(live.core(), std::move(made)), worker);
  });
}

distag_status distag_rref_get_local(distag_rref* rref, distag_value** out_value, distag_error* err) {
  clear(out_value);
  return guard(__func__, err, [=] {
    distag_rref& live = need(rref, "rref");
    need_pointer(out_value, "out_value");
    live.worker();
    if (!live.core()->is_owner() && live.core()->owner_peer()->name == live.worker().core().name()) {
      refuse(Status::kPeerRestarted, "this worker had the value before it was restarted");
    }
    if (!live.core()->is_owner()) {
      refuse(Status::kInvalidState, "the value is at worker \"{}\": call a function there, or fetch a copy",
             live.owner_name());
    }
    if (!live.core()->owned()->outcome().is_done()) {
      refuse(Status::kInvalidState, "the value is not there yet: wait for it with distag_rref_fetch");
    }
    *out_value = live.local();
  });
}

const char* distag_rref_get_owner(distag_rref* rref) {
  return guard_or<const char*>(nullptr, [rref]() -> const char* {
    const distag_rref* live = peek(rref);
    return live == nullptr ? nullptr : live->owner_name();
  });
}

int32_t distag_rref_is_owner(distag_rref* rref) {
  const distag_rref* live = peek(rref);
  return live != nullptr && live->core()->is_owner() ? 1 : 0;
}

int32_t distag_rref_is_confirmed(distag_rref* rref) {
  const distag_rref* live = peek(rref);
  return live != nullptr && live->core()->is_confirmed() ? 1 : 0;
}

uint64_t distag_rref_get_id(distag_rref* rref) {
  const distag_rref* live = peek(rref);
  return live == nullptr ? 0 : live->core()->number();
}
