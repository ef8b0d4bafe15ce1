#include "worker/rref_places.h"

#include "base/error.h"

namespace distag {

std::shared_ptr<Rref> RrefPlaces::need_rref(const Value& parameter) const {
  auto reference = as_rref(parameter);
  if (reference == nullptr) {
    fail(Status::kInvalidArgument, "a parameter is a tensor, or an rref to one or to a list of them, not {}",
         kind_name(parameter.kind()));
  }
  rrefs_.check(parameter);
  return reference;
}

std::string RrefPlaces::owner(const Value& parameter) {
  const auto reference = need_rref(parameter);
  return reference->is_owner() ? "" : reference->owner_peer()->name;
}

uint64_t RrefPlaces::identity(const Value& parameter) { return need_rref(parameter)->number(); }

Value RrefPlaces::resolve(const Value& parameter) {
  const auto reference = need_rref(parameter);
  if (!reference->is_owner()) {
    fail(Status::kPeerRestarted, "a parameter is gone with the worker \"{}\" that had it: a new one has come back",
         reference->owner_peer()->name);
  }
  if (!reference->owned()->outcome().is_done()) {
    fail(Status::kInvalidState, "a parameter is not there yet: wait for it with distag_rref_fetch");
  }
  return reference->owned()->value();
}

Value RrefPlaces::find(const Value& parameter) {
  const auto reference = need_rref(parameter);
  if (!reference->is_owner()) return Value();
  Future<Value>& outcome = reference->owned()->outcome();
  return outcome.is_done() && outcome.error() == nullptr ? outcome.value() : Value();
}

}  // namespace distag
