#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/future.h"
#include "optim/responder.h"

namespace distag::optim {

// An owner of parameters, as error messages name it.
struct OwnerName {
  std::string name;
  int32_t rank = -1;
};

// The same request to several owners at once. Shared by the threads that wait for it. Answers may be read once it is
// done.
class Round : public std::enable_shared_from_this<Round> {
 public:
  // The outcome of the request at one owner.
  enum class Outcome { kApplied, kNotApplied, kUnknown };

  Round(std::vector<OwnerName> owners, std::vector<std::shared_ptr<Future<Value>>> futures);
  // Must be called before use; later completes `done`.
  void begin();

  const std::shared_ptr<Future<Unit>>& done() const { return done_; }
  void cancel();

  Outcome outcome(size_t index) const;
  // Throws unless the owner applied the request.
  const Value& answer(size_t index) const { return Responder::read(futures_[index]->value()); }
  std::vector<int32_t> applied_ranks() const;  // ascending
  // Throws the first failure unless every owner applied the request. The text names every owner that did not or may not
  // have.
  void check(const char* what) const;

 private:
  const std::vector<OwnerName> owners_;
  const std::vector<std::shared_ptr<Future<Value>>> futures_;
  const std::shared_ptr<Future<Unit>> done_ = Future<Unit>::make();
  std::atomic<size_t> open_;
};

}  // namespace distag::optim
