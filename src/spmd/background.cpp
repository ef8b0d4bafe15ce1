#include "spmd/background.h"

#include <fmt/format.h>

#include "base/executor.h"
#include "base/fail_future.h"
#include "base/pool_place.h"

namespace distag::spmd {
namespace {

std::string name_of_work_line(const Line& line) {
  return fmt::format("checkpoints {:x}", Fingerprint().add(line.name).value());
}

// A future that passes its failure to `on_lost` when its last holder drops it without having asked for the outcome.
std::shared_ptr<Future<Value>> make_future(const std::shared_ptr<std::atomic<bool>>& is_seen, OnLost on_lost) {
  const auto end = [is_seen, on_lost = std::move(on_lost)](Future<Value>* future) {
    try {
      if (!*is_seen && future->is_done() && future->error() != nullptr) on_lost(*future->error());
    } catch (...) {
      // Without memory, the failure is not logged.
    }
    delete future;
  };
  return std::shared_ptr<Future<Value>>(new Future<Value>(), end);
}

// A save or load, from its call until it has ended or was dropped.
class Piece {
 public:
  Piece(const Line& line, const char* operation, Background work, OnLost on_lost)
      : own_{line.program, name_of_work_line(line)},
        busy_(line.program->mesh()),
        work_(std::move(work)),
        future_(make_future(is_seen_, std::move(on_lost))) {
    future_->set_operation(operation);
    future_->claim();  // the others make it too
  }
  ~Piece() {
    fail_dropped(*future_);
    done_->complete(Unit());
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  Mesh& mesh() const { return own_.program->mesh(); }
  Begun begun() const { return {future_, is_seen_}; }
  const std::shared_ptr<Future<Unit>>& done() const { return done_; }

  void run() noexcept {
    try {
      future_->complete(do_work());
    } catch (...) {
      fail_or_drop(current_error());
    }
    work_.reset();
  }

  // Ends the mesh: this member alone has failed, and the others wait for it.
  void give_up(const Error& error) noexcept {
    mesh().end(error);
    fail_or_drop(error);
  }

 private:
  Value do_work() {
    const PoolPlaceLeft place;  // disks are slow, and the pool adds up the sums of collectives too
    return work_(own_);
  }
  void fail_or_drop(const Error& error) noexcept {
    try {
      fail_or_say_less(*future_, error);
    } catch (...) {
      return;  // without memory: ~Piece() fails the future as a dropped one
    }
  }

  const Line own_;
  const Mesh::Work busy_;
  Background work_;
  const std::shared_ptr<std::atomic<bool>> is_seen_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<Future<Value>> future_;
  const std::shared_ptr<Future<Unit>> done_ = Future<Unit>::make();
};

void post(const std::shared_ptr<Piece>& piece) noexcept {
  try {
    piece->mesh().compute().post_or_drop([piece] { piece->run(); });
  } catch (...) {
    piece->give_up(current_error());
  }
}

}  // namespace

WorkTurn::WorkTurn(const Line& line) {
  const auto before = line.program->follow_work(line.name, done_);
  try {
    if (before != nullptr) wait(*before, kForever);
  } catch (...) {
    const Error error = current_error();
    line.program->mesh().end(error);  // the others wait for this one
    done_->complete(Unit());
    throw error;
  }
}

Begun begin_behind(const Line& line, const char* operation, Background work, OnLost on_lost) {
  std::shared_ptr<Piece> piece;
  try {
    piece = std::make_shared<Piece>(line, operation, std::move(work), std::move(on_lost));
    const Begun begun = piece->begun();
    const auto before = line.program->follow_work(line.name, piece->done());
    if (before == nullptr) {
      post(piece);
    } else {
      before->on_done([piece] { post(piece); });
    }
    return begun;
  } catch (...) {
    const Error error = current_error();
    line.program->mesh().end(error);
    throw error;
  }
}

}  // namespace distag::spmd
