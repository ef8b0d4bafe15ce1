#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/future.h"
#include "optim/responder.h"

namespace distag::optim {

// One owner of parameters as its asker knows it.
struct OwnerName {
  std::string name;
  int32_t rank = -1;
};

// The same question to several owners, side by side. Shared by those who wait for it. Answers are read once is done.
class Round : public std::enable_shared_from_this<Round> {
 public:
  // The outcome of the question at one owner.
  enum class Outcome { kApplied, kNotApplied, kUnknown };

  Round(std::vector<OwnerName> owners, std::vector<std::shared_ptr<Future<Value>>> futures);
  // Before it is used; completes `done`.
  void begin();

  const std::shared_ptr<Future<Unit>>& done() const { return done_; }
  void cancel();

  Outcome outcome(size_t index) const;
  // Throws unless it was applied.
  const Value& answer(size_t index) const { return Responder::read(futures_[index]->value()); }
  std::vector<int32_t> applied_ranks() const;  // ascending
  // Throws the first failure unless it was applied everywhere; the text names every owner where it was not, or may not.
  void check(const char* what) const;

 private:
  const std::vector<OwnerName> owners_;
  const std::vector<std::shared_ptr<Future<Value>>> futures_;
  const std::shared_ptr<Future<Unit>> done_ = Future<Unit>::make();
  std::atomic<size_t> open_;
};

}  // namespace distag::optim
