#include "rpc/caller_accounts.h"

#include <utility>

#include "rpc/rpc_shared.h"

namespace distag {

const std::shared_ptr<CallerAccount>& CallerAccounts::of(Incarnation caller) {
  assert_on_loop(shared_.environment.loop);
  const auto found = accounts_.find(caller);
  if (found != accounts_.end()) return found->second;
  auto account = std::make_shared<CallerAccount>();
  account->taken = std::make_shared<TakenCosts>(shared_.group, caller);
  account->answers = std::make_shared<AnswerRoom>(shared_.weak_from_this(), shared_.config.max_in_flight);
  return accounts_.emplace(caller, std::move(account)).first->second;
}

void CallerAccounts::drop(Incarnation caller, uint64_t cost) {
  assert_on_loop(shared_.environment.loop);
  of(caller)->taken->add(shared_.gate, cost);
}

uint64_t CallerAccounts::taken(Incarnation caller) {
  assert_on_loop(shared_.environment.loop);
  return of(caller)->taken->total();
}

Heard CallerAccounts::on_credit_wanted(Incarnation caller, uint64_t taken) {
  assert_on_loop(shared_.environment.loop);
  of(caller)->taken->on_wanted(taken);
  return Heard::kHandled;
}

CallerAccounts::Calls CallerAccounts::close(Incarnation caller) {
  assert_on_loop(shared_.environment.loop);
  const auto account = accounts_.extract(caller);
  return account.empty() ? Calls() : account.mapped()->answers->close();
}

CallerAccounts::Calls CallerAccounts::close_all() noexcept {
  Calls all;
  for (const auto& [caller, account] : accounts_) all.splice(all.end(), account->answers->close());
  return all;
}

}  // namespace distag
