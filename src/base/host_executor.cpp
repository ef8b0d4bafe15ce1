#include "base/host_executor.h"

#include "base/host_pump.h"

namespace distag {

HostExecutor::HostExecutor() : pump_(std::make_shared<HostPump>()) { pump_->enlist(); }

HostExecutor::~HostExecutor() { pump_->stop(); }

bool HostExecutor::stop(Nanos timeout) {
  pump_->stop();
  return !pump_->runs_elsewhere() || wait(*pump_->ended(), timeout);
}

bool HostExecutor::post(Task task) {
  OneTask made;
  made.push_back(std::move(task));
  return pump_->post(std::move(made));
}

void HostExecutor::post_or_drop_made(OneTask task) { static_cast<void>(pump_->post(std::move(task))); }

size_t HostExecutor::waiting() const { return pump_->waiting(); }

bool HostExecutor::is_running() const { return pump_->is_running(); }

size_t HostExecutor::poll(size_t max_items, Nanos max_time) {
  if (!pump_->claim()) return 0;
  const SteadyClock clock;
  const Nanos deadline = deadline_after(clock.now(), max_time);
  size_t ran = 0;
  while ((max_items == 0 || ran < max_items) && (deadline == kNever || clock.now() < deadline) && pump_->run_one()) {
    ++ran;
  }
  return ran;
}

bool HostExecutor::is_stopped() const { return pump_->is_stopped(); }

void HostExecutor::add_waiter(std::shared_ptr<Future<Unit>> next) { pump_->add_waiter(std::move(next)); }

void HostExecutor::forget_waiter(const std::shared_ptr<Future<Unit>>& next) { pump_->forget_waiter(next); }

int HostExecutor::fd() const { return pump_->fd(); }

}  // namespace distag
