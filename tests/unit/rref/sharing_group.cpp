#include "sharing_group.h"

#include <fmt/format.h>

namespace distag::testing {
namespace {

uint64_t mix(uint64_t state, uint64_t more) {
  state = (state ^ more) * 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 29)) * 0xBF58476D1CE4E5B9u;
  return state ^ (state >> 32);
}

uint64_t extend(uint64_t history, const Event& event) {
  return mix(mix(history, static_cast<uint64_t>(event.kind) + 1), event.from);
}

}  // namespace

std::string describe(const Event& event) {
  static constexpr const char* kTexts[] = {"w{} gets the next message from w{}",
                                           "w{} hears the next acknowledgement of w{}",
                                           "w{} loses w{}",
                                           "w{} numbers the call that makes value {}",
                                           "w{} ends the function that makes value {}",
                                           "w{} dies",
                                           "w{} and w{} lose each other",
                                           "at w{} user {} does the next step"};
  return fmt::format(fmt::runtime(kTexts[static_cast<size_t>(event.kind)]), event.at, event.from);
}

SharingGroup::Worker::Worker(SharingGroup& g, size_t i)
    : group(g), index(i), home(std::make_shared<RrefHome>(g.loop_, log)), sharing(home, *this, 1000 + i) {
  Peer self;
  self.rank = static_cast<int32_t>(i);
  self.name = fmt::format("w{}", i);
  self.incarnation = 100 + i;
  peer = std::make_shared<const Peer>(self);
  home->sharing = &sharing;
  sharing.begin(self);
}

void SharingGroup::Worker::send(const Peer& to, wire::Body body, Task on_acknowledged) {
  group.put(index, index_of(to.incarnation), {std::move(body), std::move(on_acknowledged)});
}

std::shared_ptr<const Peer> SharingGroup::Worker::find(Incarnation worker) const {
  const size_t found = index_of(worker);
  return found < group.workers_.size() ? group.workers_[found]->peer : nullptr;
}

bool SharingGroup::Worker::is_gone(Incarnation worker) const {
  const size_t found = index_of(worker);
  return found >= lost.size() || lost[found];
}

std::string SharingGroup::Worker::name_of_rank(int32_t rank) const {
  const auto found = static_cast<size_t>(rank);
  return found < group.workers_.size() ? group.workers_[found]->peer->name : "";
}

SharingGroup::SharingGroup(size_t size) {
  for (size_t i = 0; i < size; ++i) workers_.push_back(std::make_unique<Worker>(*this, i));
  for (const auto& worker : workers_) {
    worker->lost.resize(size);
    worker->inbox.resize(size);
    worker->acks.resize(size);
  }
}

SharingGroup::~SharingGroup() {
  for (const auto& worker : workers_) worker->home->gate.close();
  holders_.clear();
  values_.clear();
  for (const auto& worker : workers_) worker->sharing.stop();
}

size_t SharingGroup::root(size_t holder) const {
  while (holders_[holder].same_as != kNone) holder = holders_[holder].same_as;
  return holder;
}

size_t SharingGroup::add_holder(Holder holder) {
  holders_.push_back(std::move(holder));
  return holders_.size() - 1;
}

void SharingGroup::put(size_t from, size_t to, Letter letter) {
  Worker& sender = *workers_[from];
  Worker& receiver = *workers_[to];
  if (!sender.is_alive || sender.lost[to] || !receiver.is_alive || receiver.lost[from]) return;
  receiver.inbox[from].push_back(std::move(letter));
}

// ---- users ----

size_t SharingGroup::create(size_t worker) {
  Worker& owner = *workers_[worker];
  const Id id{1000 + worker, ++owner.last_own};
  const auto owned = owner.home->make_value(id);
  owned->outcome().complete(Value(int64_t{7}));
  SharedValue value;
  value.id = id;
  value.owner = worker;
  values_.push_back(std::move(value));
  Holder holder;
  holder.value = values_.size() - 1;
  holder.worker = worker;
  holder.is_counted = true;
  holder.handle = std::make_shared<Rref>(owner.home, owned);
  return add_holder(std::move(holder));
}

size_t SharingGroup::remote(size_t worker, size_t owner) {
  Worker& creator = *workers_[worker];
  const Id id{creator.peer->incarnation, 2 * ++creator.last_creation - 1};
  Holder holder;
  holder.value = values_.size();
  holder.worker = worker;
  holder.handle = worker == owner ? std::make_shared<Rref>(creator.home, creator.home->make_value(id))
                                  : std::make_shared<Rref>(creator.home, id, workers_[owner]->peer, id);
  holder.is_lost = creator.lost[owner] || workers_[owner]->lost[worker];
  SharedValue value;
  value.id = id;
  value.owner = owner;
  value.creator = holders_.size();
  value.creation = Creation::kInQueue;
  value.is_dead = holder.is_lost;
  value.in_queue = holder.handle;
  by_fork_[id] = holders_.size();
  values_.push_back(std::move(value));
  creator.sharing.on_creation_queued(id);
  const size_t added = add_holder(std::move(holder));
  if (creator.lost[owner]) {
    fail_creation(added);
  } else if (makes_at_once_) {
    number(values_.size() - 1);
  }
  return added;
}

size_t SharingGroup::share(size_t index, size_t to) {
  const size_t original = root(index);
  const Holder& sharer = holders_[index];
  Worker& sender = *workers_[sharer.worker];
  if (sender.lost[to]) return kNone;
  const auto travelling =
      std::static_pointer_cast<wire::Reference>(sender.sharing.on_send(*workers_[to]->peer, sharer.handle));
  Holder holder;
  holder.value = sharer.value;
  holder.worker = to;
  holder.parent = original;
  holder.is_counted = sharer.handle->is_owner();
  holder.is_orphan = holders_[original].is_orphan || (holders_[original].is_lost && to != sharer.worker);
  const size_t owner = values_[sharer.value].owner;
  holder.is_lost = workers_[owner]->lost[to] || workers_[to]->lost[owner];
  if (to == sharer.worker) holder.same_as = original;
  const size_t from = sharer.worker;
  const size_t added = add_holder(std::move(holder));
  if (travelling->fork) by_fork_[travelling->fork] = added;
  put(from, to, {Passing{*travelling, added}, nullptr});
  return added;
}

void SharingGroup::drop(size_t holder) { holders_[holder].handle.reset(); }

void SharingGroup::fail_creation(size_t holder) {
  SharedValue& value = values_[holders_[holder].value];
  Worker& creator = *workers_[holders_[value.creator].worker];
  value.is_dead = true;
  value.creation = Creation::kNumbered;
  const Error error(Status::kDeadline, "its time was up before it was sent");
  if (value.in_queue->is_owner()) value.in_queue->owned()->outcome().fail(error);
  const auto held = std::exchange(value.in_queue, nullptr);
  creator.sharing.on_creation_failed(*workers_[value.owner]->peer, value.id);
}

// ---- what happens by itself ----

std::vector<Event> SharingGroup::next() const {
  std::vector<Event> events;
  const auto add = [&events](Event::Kind kind, size_t at, size_t from) {
    events.push_back({kind, static_cast<uint8_t>(at), static_cast<uint8_t>(from)});
  };
  for (const auto& worker : workers_) {
    if (!worker->is_alive) continue;
    for (size_t other = 0; other < workers_.size(); ++other) {
      if (!worker->inbox[other].empty()) add(Event::Kind::kDeliver, worker->index, other);
      if (!worker->acks[other].empty()) add(Event::Kind::kAcknowledge, worker->index, other);
      if (!workers_[other]->is_alive && !worker->lost[other]) add(Event::Kind::kLose, worker->index, other);
    }
  }
  for (const auto& [a, b] : parted_) {
    if (workers_[a]->is_alive && workers_[b]->is_alive && !workers_[a]->lost[b]) add(Event::Kind::kLose, a, b);
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    const size_t creator = values_[i].creation == Creation::kNone ? 0 : holders_[values_[i].creator].worker;
    if (values_[i].in_queue) add(Event::Kind::kNumber, creator, i);
    if (values_[i].running) add(Event::Kind::kFinish, values_[i].owner, i);
  }
  return events;
}

void SharingGroup::note(const Event& event) {
  uint64_t& history = workers_[event.at]->history;
  history = extend(history, event);
}

void SharingGroup::play(const Event& event) {
  note(event);
  Worker& at = *workers_[event.at];
  switch (event.kind) {
    case Event::Kind::kDeliver:
      deliver(event.from, event.at);
      break;
    case Event::Kind::kAcknowledge: {
      Task task = std::move(at.acks[event.from].front());
      at.acks[event.from].pop_front();
      task();
      break;
    }
    case Event::Kind::kLose:
      lose(event.at, event.from);
      break;
    case Event::Kind::kNumber:
      number(event.from);
      break;
    case Event::Kind::kFinish:
      finish(event.from);
      break;
    case Event::Kind::kCrash:
      crash(event.at);
      break;
    case Event::Kind::kPart:
      parted_.emplace_back(event.at, event.from);
      parted_.emplace_back(event.from, event.at);
      break;
    case Event::Kind::kUser:
      break;
  }
}

void SharingGroup::number(size_t index) {
  SharedValue& value = values_[index];
  const size_t creator = holders_[value.creator].worker;
  workers_[creator]->sharing.on_creation_numbered(value.id);
  value.creation = Creation::kNumbered;
  const auto held = std::exchange(value.in_queue, nullptr);
  put(creator, value.owner, {Making{index}, nullptr});
}

void SharingGroup::finish(size_t index) {
  SharedValue& value = values_[index];
  value.creation = Creation::kMade;
  std::exchange(value.running, nullptr)->outcome().complete(Value(int64_t{7}));
}

void SharingGroup::deliver(size_t from, size_t to) {
  Worker& at = *workers_[to];
  Letter letter = std::move(at.inbox[from].front());
  at.inbox[from].pop_front();
  if (auto* passing = std::get_if<Passing>(&letter.content)) {
    arrive(from, at, *passing);
  } else if (auto* making = std::get_if<Making>(&letter.content)) {
    arrive(from, at, *making);
  } else {
    const auto& body = std::get<wire::Body>(letter.content);
    if (const auto* fork = std::get_if<wire::Fork>(&body)) holders_[by_fork_.at(fork->fork)].is_counted = true;
    static_cast<void>(at.sharing.handle(*workers_[from]->peer, body));
  }
  Worker& sender = *workers_[from];
  if (!letter.on_acknowledged || !sender.is_alive || sender.lost[to]) return;
  if (acknowledges_at_once_) {
    letter.on_acknowledged();
  } else {
    sender.acks[to].push_back(std::move(letter.on_acknowledged));
  }
}

void SharingGroup::arrive(size_t from, Worker& at, Passing& passing) {
  Holder& holder = holders_[passing.holder];
  holder.handle = at.sharing.on_receive(*workers_[from]->peer, passing.reference);
  if (holder.handle->is_owner()) {
    holder.is_counted = true;
    holder.is_orphan = holders_[root(holder.parent)].is_orphan;
  } else {
    holder.is_lost = holder.is_lost || at.lost[values_[holder.value].owner];
  }
}

void SharingGroup::arrive(size_t from, Worker& at, Making& making) {
  SharedValue& value = values_[making.value];
  value.running = at.sharing.on_creation(*workers_[from]->peer, value.id, "call \"make\"");
  value.creation = Creation::kRunning;
  holders_[value.creator].is_counted = true;
  if (makes_at_once_) finish(making.value);
}

void SharingGroup::crash(size_t worker) {
  Worker& dead = *workers_[worker];
  dead.is_alive = false;
  dead.home->gate.close();
  for (auto& inbox : dead.inbox) inbox.clear();
  for (auto& acks : dead.acks) acks.clear();
  for (Holder& holder : holders_) {
    if (holder.worker == worker) holder.handle.reset();
  }
  for (SharedValue& value : values_) {
    if (value.owner == worker) value.running.reset();
    if (value.in_queue && holders_[value.creator].worker == worker) value.in_queue.reset();
  }
  dead.sharing.stop();
}

void SharingGroup::lose(size_t at, size_t gone) {
  Worker& worker = *workers_[at];
  worker.lost[gone] = true;
  worker.inbox[gone].clear();
  worker.acks[gone].clear();
  for (size_t i = 0; i < values_.size(); ++i) {
    SharedValue& value = values_[i];
    if (value.creation == Creation::kNone) continue;
    const size_t creator = holders_[value.creator].worker;
    if (value.owner == at && creator == gone && value.creation <= Creation::kNumbered) value.is_dead = true;
    if (creator == at && value.owner == gone && value.in_queue) fail_creation(value.creator);
  }
  orphan(at, gone);
  worker.sharing.on_gone(*workers_[gone]->peer);
}

// A holder that is not counted yet lives by the hold of its parent, which ends with the loss.
void SharingGroup::orphan(size_t at, size_t gone) {
  for (size_t i = 0; i < holders_.size(); ++i) {
    Holder& holder = holders_[i];
    const size_t owner = values_[holder.value].owner;
    const bool is_of_owner = at == owner || gone == owner;
    const size_t other = at == owner ? gone : at;
    if (is_of_owner && holder.worker == other) holder.is_lost = true;
    if (holder.is_counted || holder.parent == kNone || holder.worker == owner) continue;
    if (gone == owner && holder.worker == at) holder.is_orphan = true;  // it lets its parent go
    const size_t parent = holders_[holder.parent].worker;
    if (holders_[holder.parent].is_orphan || (is_of_owner && parent == other) ||
        (parent == at && holder.worker == gone)) {
      holder.is_orphan = true;
    }
  }
}

uint64_t SharingGroup::key(const Event* next) const {
  uint64_t key = parted_.size();
  for (const auto& [a, b] : parted_) key = mix(key, a * 16 + b);
  for (const auto& worker : workers_) {
    const bool goes_on = next != nullptr && next->at == worker->index;
    key = mix(key, goes_on ? extend(worker->history, *next) : worker->history);
  }
  // The part that depends on the order at different workers, once there are losses.
  for (size_t i = 0; i < holders_.size(); ++i) {
    if (holders_[i].is_orphan || holders_[i].is_lost) key ^= mix(i, holders_[i].is_orphan * 2u + holders_[i].is_lost);
  }
  return key;
}

// ---- what has to hold ----

void SharingGroup::check() const {
  for (size_t i = 0; i < holders_.size(); ++i) {
    if (holders_[i].handle) check_holder(holders_[i], holders_[root(i)]);
  }
  for (const auto& worker : workers_) {
    if (worker->is_alive) check_failures(*worker);
  }
}

void SharingGroup::check_holder(const Holder& holder, const Holder& original) const {
  const SharedValue& value = values_[holder.value];
  const Worker& owner = *workers_[value.owner];
  if (!owner.is_alive || original.is_lost || original.is_orphan || holder.is_orphan || value.is_dead) return;
  const auto found = owner.home->table.find(value.id);
  const bool has_come = value.creation == Creation::kNone || value.creation >= Creation::kRunning;
  if (has_come && !found) throw Broken(fmt::format("w{} has a reference to a value that is gone", holder.worker));
  if (holder.handle->is_owner() && holder.handle->owned() != found) throw Broken("two values under one name");
  if (found && found->outcome().is_done() && found->outcome().error() != nullptr) {
    throw Broken(
        fmt::format("w{} has a reference that has failed: {}", holder.worker, found->outcome().error()->message()));
  }
}

// A value fails only if a holder was orphaned or lost, or its call never arrives; the error names the sharer.
void SharingGroup::check_failures(const Worker& worker) const {
  for (const auto& owned : worker.home->table.all()) {
    const Error* error = owned->outcome().is_done() ? owned->outcome().error() : nullptr;
    if (error == nullptr || error->status() == Status::kDeadline) continue;
    bool is_named = false;
    for (const Holder& holder : holders_) {
      const SharedValue& value = values_[holder.value];
      if (value.id != owned->id() || holder.parent == kNone) continue;
      if (!holder.is_orphan && !holder.is_lost && !value.is_dead) continue;
      const std::string& sharer = workers_[holders_[holder.parent].worker]->peer->name;
      is_named = is_named || error->message().find(fmt::format("worker \"{}\"", sharer)) != std::string::npos;
    }
    if (error->status() != Status::kNotFound || !is_named) throw Broken("a failure: " + error->message());
  }
}

void SharingGroup::check_quiet() const {
  check();
  for (const auto& worker : workers_) {
    if (!worker->is_alive) continue;
    if (!worker->sharing.is_idle()) throw Broken(fmt::format("w{} waits for nothing", worker->index));
    for (const auto& owned : worker->home->table.all()) {
      if (!owned->outcome().is_done()) throw Broken(fmt::format("w{} has a value that never comes", worker->index));
    }
  }
}

void SharingGroup::check_empty() const {
  check_quiet();
  for (const auto& worker : workers_) {
    if (!worker->is_alive) continue;
    const uint64_t owned = worker->home->table.count(), used = worker->home->used, forks = worker->home->forks;
    if (owned + used + forks != 0 || !worker->sharing.is_empty()) {
      throw Broken(fmt::format("w{} is left with {} values, {} references, {} forks{}", worker->index, owned, used,
                               forks, worker->sharing.is_empty() ? "" : ", and notes of them"));
    }
  }
}

}  // namespace distag::testing
