#include "base/lead.h"

#include <utility>

#include "base/parker.h"

namespace distag {
namespace {

thread_local Lead* t_lead = nullptr;

}  // namespace

Lead::Lead(Loop& loop) noexcept : loop_(loop), outer_(t_lead), is_installed_(loop.has_leaders()) {
  if (!is_installed_) return;
  // The wait may be for something that the other loop brings.
  if (outer_ != nullptr && &outer_->loop_ != &loop) outer_->loop_.wake();
  t_lead = this;
}

Lead::~Lead() {
  if (!is_installed_) return;
  t_lead = outer_;
  loop_.wake();
}

bool Lead::is_quiet_to(const Loop& loop) noexcept { return t_lead != nullptr && &t_lead->loop_ == &loop; }

NoLead::NoLead() noexcept : before_(std::exchange(t_lead, nullptr)) {
  if (before_ != nullptr) before_->loop_.wake();
}

NoLead::~NoLead() { t_lead = before_; }

bool lead_or_park(Completion& completion, Nanos timeout) {
  return t_lead == nullptr ? park_until_done(completion, timeout) : t_lead->loop_.lead(completion, timeout);
}

bool Loop::lead(Completion& completion, Nanos timeout) { return park_until_done(completion, timeout); }

}  // namespace distag
