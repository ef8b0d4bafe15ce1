#include "rref/owned.h"

#include <fmt/format.h>

#include "base/mutex.h"
#include "rref/rref.h"

namespace distag {
namespace {

using Outcome = std::shared_ptr<Future<Value>>;

thread_local std::vector<Outcome>* t_ending = nullptr;

// A value may hold the last reference to another one; `t_ending` keeps a chain of them from recursing.
void let_go(Outcome outcome) {
  if (t_ending != nullptr) {
    try {
      t_ending->push_back(std::move(outcome));
    } catch (...) {
      // Without memory for the list, the value ends here.
    }
    return;
  }
  std::vector<Outcome> ending;
  t_ending = &ending;
  outcome.reset();
  while (!ending.empty()) {
    outcome = std::move(ending.back());
    ending.pop_back();
    outcome.reset();
  }
  t_ending = nullptr;
}

}  // namespace

OwnedValue::~OwnedValue() {
  home_->table.remove(id_);
  report();
  let_go(std::move(outcome_));
}

void OwnedValue::report() const {
  const Error* error = outcome_->is_done() ? outcome_->error() : nullptr;
  if (error == nullptr || is_seen_.load()) return;
  try {
    const std::string made_by = origin();
    if (made_by.empty()) return;
    home_->gate.run([&log = home_->log, text = fmt::format("{} failed, and no user saw it: {}", made_by,
                                                           error->message())] { log.write(LogLevel::kWarning, text); });
  } catch (...) {
    // Without memory for the text nothing is logged.
  }
}

std::string OwnedValue::origin() const {
  MutexLock lock(mutex_);
  return origin_;
}

void OwnedValue::set_origin(std::string origin) {
  MutexLock lock(mutex_);
  origin_ = std::move(origin);
}

const Value& OwnedValue::value() {
  is_seen_.store(true);
  return outcome_->value();
}

void OwnedTable::add(const std::shared_ptr<OwnedValue>& value) {
  MutexLock lock(mutex_);
  values_.insert_or_assign(value->id(), value);
}

std::shared_ptr<OwnedValue> OwnedTable::find(const Id& id) const {
  MutexLock lock(mutex_);
  const auto found = values_.find(id);
  return found == values_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<OwnedValue>> OwnedTable::all() const {
  std::vector<std::shared_ptr<OwnedValue>> values;
  MutexLock lock(mutex_);
  values.reserve(values_.size());
  for (const auto& [id, weak] : values_) {
    if (auto value = weak.lock()) values.push_back(std::move(value));
  }
  return values;
}

// The values are out of the table meanwhile, so that no lock is held while one of them ends.
void OwnedTable::visit(const std::function<void(OwnedValue&)>& visitor) {
  std::unordered_map<Id, std::weak_ptr<OwnedValue>> values;
  {
    MutexLock lock(mutex_);
    values.swap(values_);
  }
  for (const auto& [id, weak] : values) {
    if (const auto value = weak.lock()) visitor(*value);
  }
  MutexLock lock(mutex_);
  values.swap(values_);
  values_.merge(values);
  std::erase_if(values_, [](const auto& entry) { return entry.second.expired(); });
}

uint64_t OwnedTable::count() const {
  MutexLock lock(mutex_);
  return values_.size();
}

// Does nothing if another value has that id by now.
void OwnedTable::remove(const Id& id) {
  MutexLock lock(mutex_);
  const auto found = values_.find(id);
  if (found != values_.end() && found->second.expired()) values_.erase(found);
}

}  // namespace distag
