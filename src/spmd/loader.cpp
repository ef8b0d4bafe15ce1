#include "spmd/loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fail_future.h"
#include "base/host_callback.h"
#include "base/pool_place.h"
#include "layout/spec_text.h"
#include "spmd/sharding.h"

namespace distag::spmd {
namespace {

// The most words under way at once, below the limit of open calls of a line.
constexpr size_t kMostTold = 64;

std::string name_of_own_line(const Line& line, uint64_t call) {
  return fmt::format("loader {:x}-{}", Fingerprint().add(line.name).value(), call);
}

std::string name_of_parts(const std::string& name) { return name + " parts"; }

Error line_closed() { return Error(Status::kCancelled, "the loader is at its end"); }

}  // namespace

// The making of one batch by this member's source.
struct Loader::Making : std::enable_shared_from_this<Loader::Making> {
  TaskPlace place;
  std::shared_ptr<Loader> loader;
  std::shared_ptr<BatchSource> source;
  uint64_t number = 0;
  MadeBatch made;

  void run();  // on a thread for host code
};

// A wait for a batch that is not ready.
struct Loader::Waiting : std::enable_shared_from_this<Loader::Waiting> {
  TaskPlace place;
  std::shared_ptr<Loader> loader;
  std::shared_ptr<Future<Value>> future;
  Nanos timeout = 0;
  Nanos deadline = 0;
  Loop::TimerId timer = 0;

  void begin();
  void end_late();
};

// ---- from the host ----

std::shared_ptr<Loader> Loader::create(const Line& line, const Environment& environment, const LoaderSettings& settings,
                                       const Value& state, std::unique_ptr<BatchSource> source) {
  CallOnLine call(line, "loader_create");
  const std::string what = fmt::format("loader_create({})", settings.describe());
  std::shared_ptr<Loader> loader;
  uint64_t first = 0;
  try {
    settings.check();
    if (!state.is_null()) first = settings.first_of(state);
    loader = std::make_shared<Loader>(line, environment, settings, first, call.number(), std::move(source));
  } catch (...) {
    call.note_failure(what, current_error());
    throw;
  }
  call.note(what, Fingerprint().add(what).add(first).value());
  loader->counts_.is_advance_posted = true;  // its place is taken until then
  const bool is_posted = loader->mesh().run(loader->advance_, [loader] {
    loader->counts_.is_advance_posted = false;
    loader->attempt([&] { loader->begin(); });
  });
  if (!is_posted) {
    fail(Status::kInvalidState, "the worker is shut down");
  }
  return loader;
}

Loader::Loader(const Line& line, const Environment& environment, const LoaderSettings& settings, uint64_t first,
               uint64_t call, std::unique_ptr<BatchSource> source)
    : line_(line),
      environment_(environment),
      settings_(settings),
      name_(name_of_own_line(line, call)),
      rows_(settings),
      rules_(line.program->shape(), line.program->position(), settings, line.program->mesh().policy().check_replicas),
      queue_(first),
      source_(std::move(source)),
      line_end_(name_),
      scatter_(line, name_of_parts(name_)) {
  progress_.to_start = progress_.to_tell = progress_.to_agree = progress_.to_deliver = first;
  if (const auto batches = rows_.batches()) counts_.batches = static_cast<int64_t>(*batches);
}

std::shared_ptr<Future<Value>> Loader::next(Nanos timeout) {
  const Nanos now = mesh().loop().now();
  if (mesh().when_ended()->is_done()) {
    auto failed = Future<Value>::make();
    failed->fail(*mesh().when_ended()->error());
    return failed;
  }
  auto waiting = std::make_shared<Waiting>();  // once a batch is taken, nothing fails
  auto future = queue_.take(now);
  if (future->is_done()) {
    post_advance();
    return future;
  }
  try {
    waiting->loader = shared_from_this();
    waiting->future = future;
    waiting->timeout = timeout;
    waiting->deadline = deadline_after(now, timeout);
    TaskPlace& place = waiting->place;
    if (!mesh().run(place, [waiting] { waiting->loader->attempt([&] { waiting->begin(); }); })) {
      fail_dropped(*future);
    }
  } catch (...) {
    queue_.forget(future, now);
    throw;
  }
  return future;
}

LoaderInfo Loader::info() const {
  const BatchQueue::Counts now = queue_.counts();
  return {now.ready, now.next, counts_.batches, counts_.dropped, now.waited, counts_.in_source};
}

void Loader::close() noexcept {
  counts_.is_closed = true;
  try {
    mesh().run(close_, [self = shared_from_this()] { self->attempt([&] { self->on_closed(); }); });
  } catch (...) {
    // The call ran on the loop, and its failure has ended the mesh.
  }
}

void Loader::post_advance() {
  if (counts_.is_advance_posted.exchange(true)) return;
  mesh().run(advance_, [self = shared_from_this()] {
    self->counts_.is_advance_posted = false;
    self->attempt([&] { self->advance(); });
  });
}

// ---- on the loop: its source ----

// Ends the mesh when a step fails: the other members do not know of the failure, and would wait.
template <typename Step>
void Loader::attempt(Step step) {
  try {
    step();
  } catch (...) {
    mesh().end_alone(current_error(), name_);
  }
}

void Loader::begin() {
  auto ended = Future<Unit>::make();
  ended->on_done([weak = weak_from_this(), future = ended.get()] {
    if (const auto self = weak.lock()) self->on_line_ended(*future->error());
  });
  mesh().open_own_line(name_, ended, line_.name);
  if (progress_.is_over) return;
  if (settings_.mode == BatchMode::kRoot) scatter_.open();
  advance();
}

void Loader::advance() {
  if (progress_.is_over) return;
  if (!progress_.last && rows_.is_past(progress_.to_agree)) progress_.last = progress_.to_agree;
  deliver();
  if (progress_.is_over) return;
  start_sources();
  tell_made();
}

void Loader::start_sources() {
  const size_t most = std::min(settings_.concurrency, environment_.most_sources);
  const uint64_t end = queue_.next() + settings_.prefetch;
  while (!progress_.has_stopped && progress_.to_start < end && !rows_.is_past(progress_.to_start)) {
    if (!rules_.is_asked(rows_.range(progress_.to_start))) {
      progress_.made.emplace(progress_.to_start++, MadeBatch());
      continue;
    }
    if (progress_.running.size() >= most) return;
    start_source(progress_.to_start++);
  }
}

void Loader::start_source(uint64_t number) {
  auto making = std::make_shared<Making>();
  making->loader = shared_from_this();
  making->source = source_;
  making->number = number;
  progress_.running.emplace(number, mesh().loop().now());
  if (!environment_.functions.post([making] { making->run(); })) progress_.has_stopped = true;
}

void Loader::Making::run() {
  if (!loader->counts_.is_closed) {
    const Loop& loop = loader->mesh().loop();
    const Nanos begun = loop.now();
    try {
      const BatchRows& all = loader->rows_;
      const BatchRows::Range range = all.range(number);
      std::vector<int64_t> rows;
      if (all.are_chosen()) rows = all.rows(range, loader->rules_.own_rows(range));
      Value given;
      {
        const PoolPlaceLeft place_left;  // it may take long, and the pool also adds up the sums of collectives
        const CallbackScope scope(loader.get());
        given = source->make(number, all.are_chosen() ? &rows : nullptr);
      }
      loader->counts_.in_source += loop.now() - begun;
      made = loader->rules_.take(given, range);
    } catch (...) {
      made = MadeBatch();
      made.word.kind = BatchWord::Kind::kFailed;
      made.word.error = current_error();
    }
  }
  source.reset();
  const std::shared_ptr<Loader> held = loader;
  held->mesh().run(place,
                   [self = shared_from_this()] { self->loader->attempt([&] { self->loader->on_made(*self); }); });
}

void Loader::on_made(Making& making) {
  progress_.running.erase(making.number);
  const BatchWord::Kind kind = making.made.word.kind;
  if (progress_.is_over || progress_.last || counts_.is_closed) {
    if (progress_.last && kind == BatchWord::Kind::kBatch) ++counts_.dropped;
    return;
  }
  if (progress_.has_stopped && making.number >= progress_.to_start) return;
  if (kind != BatchWord::Kind::kBatch) {
    // Batches behind this one are not wanted.
    progress_.has_stopped = true;
    progress_.to_start = std::min(progress_.to_start, making.number + 1);
    std::erase_if(progress_.made, [&](const auto& item) { return item.first > making.number; });
  }
  progress_.made.emplace(making.number, std::move(making.made));
  advance();
}

// ---- on the loop: the other members ----

void Loader::tell_made() {
  while (!progress_.has_told_last && !progress_.last && progress_.open < kMostTold && !progress_.is_over) {
    const auto first = progress_.made.find(progress_.to_tell);
    if (first == progress_.made.end()) break;
    MadeBatch made = std::move(first->second);
    progress_.made.erase(first);
    tell(progress_.to_tell++, std::move(made));
  }
  if (progress_.is_over || !progress_.running.contains(progress_.to_tell)) return;
  mesh().set_doing(name_, fmt::format("the source of batch {}", progress_.to_tell));
}

void Loader::tell(uint64_t number, MadeBatch made) {
  const BatchWord::Kind kind = made.word.kind;
  progress_.has_told_last = kind != BatchWord::Kind::kBatch && kind != BatchWord::Kind::kNothing;
  CollectiveCall call;
  call.kind = CollectiveKind::kAllGather;
  call.axes = all_axes(mesh().shape());
  call.tensor = write_word(made.word);
  call.line = name_;
  call.timeout = kForever;
  call.within = "loader";
  call.is_word_of_pass = true;
  progress_.parts.emplace(number, std::move(made.parts));
  ++progress_.open;
  const auto words = mesh().collective(std::move(call));
  words->on_done([weak = weak_from_this(), number, future = words.get()] {
    const auto self = weak.lock();
    if (self == nullptr || future->error() != nullptr) return;  // the end of the line tells why
    self->attempt([&] { self->on_told(number, future->value()); });
  });
}

// The words of batches may arrive out of order.
void Loader::on_told(uint64_t number, const Tensor& words) {
  if (progress_.is_over || progress_.last) return;
  --progress_.open;
  progress_.words.emplace(number, words);
  while (!progress_.is_over && !progress_.last) {
    const auto first = progress_.words.find(progress_.to_agree);
    if (first == progress_.words.end()) break;
    const Tensor agreed = std::move(first->second);
    progress_.words.erase(first);
    agree(progress_.to_agree++, agreed);
  }
  advance();
}

void Loader::agree(uint64_t number, const Tensor& words) {
  const layout::MeshShape& shape = mesh().shape();
  std::vector<std::string> names;
  for (int64_t position = 0; position < shape.count(); ++position) names.push_back(mesh().describe_member(position));
  const auto said = read_words(words, names.size());
  Arriving arriving;
  arriving.agreed = agree_on(shape, rules_.specs(), settings_.mode, number, said, names);
  const auto parts = progress_.parts.find(number);
  if (arriving.agreed.has_ended || arriving.agreed.failure) {
    progress_.last = number;
    progress_.failure = std::move(arriving.agreed.failure);
    counts_.batches = arriving.agreed.has_ended ? static_cast<int64_t>(number) : counts_.batches.load();
    for (const auto& [other, tensors] : progress_.parts) counts_.dropped += other >= number && !tensors.empty();
    for (const auto& [other, made] : progress_.made) counts_.dropped += made.word.kind == BatchWord::Kind::kBatch;
    stop_making();
    return;
  }
  arriving.parts = std::move(parts->second);
  progress_.parts.erase(parts);
  arriving.check(*this);
  const auto place = progress_.arriving.emplace(number, std::move(arriving)).first;
  if (settings_.mode == BatchMode::kRoot) {
    scatter(number);
    return;
  }
  Tensors& own = place->second.parts;
  for (size_t i = own.size(); i < place->second.agreed.entries.size(); ++i) {
    const BatchEntry& entry = place->second.agreed.entries[i];
    own.push_back(Tensor::empty(
        entry.dtype, local_shape(shape, place->second.agreed.specs[i], entry.shape, line_.program->position())));
  }
}

// The parts were made before the members agreed, and other members' words about them may be wrong.
void Loader::Arriving::check(const Loader& loader) const {
  const layout::MeshShape& shape = loader.mesh().shape();
  const int64_t position = loader.line_.program->position();
  const size_t count = agreed.entries.size();
  const bool are_of_all = loader.settings_.mode == BatchMode::kRoot && !parts.empty();
  const size_t members = are_of_all ? static_cast<size_t>(shape.count()) : 1;
  bool fits = parts.empty() || parts.size() == count * members;
  for (size_t i = 0; fits && i < parts.size(); i += members) {
    const BatchEntry& entry = agreed.entries[i / members];
    const Tensor& own = parts[are_of_all ? i + static_cast<size_t>(position) : i];
    fits = own.dtype() == entry.dtype &&
           own.shape() == local_shape(shape, agreed.specs[i / members], entry.shape, position);
  }
  if (!fits)
    fail(Status::kProtocol, "{}: the members agreed on a batch that is not the one of this member", loader.name_);
}

// Position 0 sends each member its part of each entry, in the same order on all members.
void Loader::scatter(uint64_t number) {
  Arriving& arriving = progress_.arriving.at(number);
  const size_t count = arriving.agreed.entries.size();
  arriving.given = std::exchange(arriving.parts, Tensors(count));
  arriving.missing = count;
  scatter_.add(number, count);
  scatter_more();
}

void Loader::scatter_more() {
  while (const auto entry = scatter_.begin_one()) begin_part(entry->batch, entry->place);
}

void Loader::begin_part(uint64_t number, size_t entry) {
  Arriving& arriving = progress_.arriving.at(number);
  std::shared_ptr<Future<Tensor>> part;
  if (const int64_t position = line_.program->position(); position == 0) {
    part = scatter_.give(arriving.given, entry);
  } else {
    const BatchEntry& told = arriving.agreed.entries[entry];
    const Dims shape = local_shape(mesh().shape(), arriving.agreed.specs[entry], told.shape, position);
    part = scatter_.receive(Tensor::empty(told.dtype, shape));
  }
  part->on_done([weak = weak_from_this(), number, entry, future = part.get()] {
    const auto self = weak.lock();
    if (self == nullptr || future->error() != nullptr) return;
    self->attempt([&] { self->on_part(number, entry, future->value()); });
  });
}

// At position 0: sends all that was announced, in the order in which the others receive it, some of them later.
void Loader::give_rest() {
  for (const PartScatter::Entry& entry : scatter_.take_waiting()) {
    scatter_.give(progress_.arriving.at(entry.batch).given, entry.place);
  }
  const auto members = static_cast<size_t>(mesh().shape().count());
  for (auto& [number, parts] : progress_.parts) {
    for (size_t entry = 0; entry < parts.size() / members; ++entry) scatter_.give(parts, entry);
  }
}

void Loader::on_part(uint64_t number, size_t entry, const Tensor& part) {
  if (progress_.is_over) return;
  Arriving& arriving = progress_.arriving.at(number);
  arriving.parts[entry] = part;
  scatter_.end_one();
  const bool is_whole = --arriving.missing == 0;
  scatter_more();
  if (is_whole) advance();
}

// ---- on the loop: to the host ----

void Loader::deliver() {
  while (!progress_.arriving.empty()) {
    const auto first = progress_.arriving.begin();
    if (first->first != progress_.to_deliver || first->second.missing != 0) return;
    Value batch = assemble(first->first, first->second);
    progress_.arriving.erase(first);
    ++progress_.to_deliver;
    queue_.put(std::move(batch), mesh().loop().now());
  }
  if (progress_.last == progress_.to_deliver) end();
}

Value Loader::assemble(uint64_t number, Arriving& arriving) {
  const Agreement& agreed = arriving.agreed;
  Value::List list;
  Value::Map map;
  for (size_t i = 0; i < agreed.entries.size(); ++i) {
    const BatchEntry& entry = agreed.entries[i];
    Value tensor(make_sharded(line_, {name_, number, static_cast<uint32_t>(i)}, entry.shape, agreed.specs[i],
                              std::move(arriving.parts[i])));
    if (agreed.form == BatchForm::kTensor) return tensor;
    if (agreed.form == BatchForm::kList) list.push_back(std::move(tensor));
    if (agreed.form == BatchForm::kMap) map.emplace_back(entry.key, std::move(tensor));
  }
  return agreed.form == BatchForm::kMap ? Value::map(std::move(map)) : Value::list(std::move(list));
}

void Loader::end() {
  progress_.is_over = true;
  stop_making();
  queue_.end(progress_.failure, mesh().loop().now());
  close_lines();
}

// Running sources hold what they need.
void Loader::stop_making() {
  progress_.has_stopped = true;
  progress_.made.clear();
  progress_.words.clear();
  progress_.parts.clear();
  source_.reset();
}

void Loader::on_line_ended(const Error& error) {
  if (std::exchange(progress_.is_over, true)) return;
  stop_making();
  progress_.arriving.clear();
  queue_.break_off(error);
}

// Sends the last word before the line closes, so that members that wait for this one get it. Position 0 still sends
// batches that it has announced and that no other member has.
void Loader::on_closed() {
  queue_.break_off(Error(Status::kCancelled, "the loader was released"));
  if (progress_.is_over) return;
  if (!progress_.has_told_last && !progress_.last) {
    MadeBatch released;
    released.word.kind = BatchWord::Kind::kReleased;
    tell(progress_.to_tell++, std::move(released));
  }
  if (settings_.mode == BatchMode::kRoot && line_.program->position() == 0) give_rest();
  progress_.is_over = true;
  stop_making();
  progress_.arriving.clear();
  close_lines();
}

void Loader::close_lines() {
  mesh().close_line(line_end_, line_closed());
  scatter_.close(line_closed());
}

// ---- on the loop: waits ----

// Shortly before the deadline, asks the missing members where they are.
void Loader::Waiting::begin() {
  constexpr Nanos kToAnswer = 100 * kMillisecond;
  loader->advance();
  if (future->is_done() || deadline == kNever) return;
  if (timeout == 0) return end_late();
  const Nanos ask = deadline - std::min(timeout / 2, kToAnswer);
  timer = loader->mesh().loop().start_timer(ask, [self = shared_from_this()] {
    Loader& waited = *self->loader;
    waited.attempt([&] {
      if (!waited.progress_.is_over) waited.mesh().ask_missing(waited.name_);
      self->timer = waited.mesh().loop().start_timer(self->deadline,
                                                     [self] { self->loader->attempt([&] { self->end_late(); }); });
    });
  });
  future->on_done([weak = weak_from_this()] {
    const auto done = weak.lock();
    if (done == nullptr) return;
    done->loader->mesh().run(done->place, [done] { done->loader->mesh().loop().cancel_timer(done->timer); });
  });
}

void Loader::Waiting::end_late() {
  if (future->is_done()) return;
  BatchQueue& queue = loader->queue_;
  queue.forget(future, loader->mesh().loop().now());
  const auto [text, rank] = loader->awaited();
  Error late(Status::kDeadline,
             fmt::format("batch {} is not ready after {}: waits for {}", queue.next(), describe_time(timeout), text));
  future->fail(late.set_origin_rank(rank));
}

MeshWaiting::Missing Loader::awaited() const {
  const uint64_t next = queue_.next();
  if (progress_.to_tell > next) {
    MeshWaiting::Missing members = mesh().missing(name_);
    if (members.text.empty()) members.text = "parts that are on their way";
    return members;
  }
  const std::string own = mesh().describe_member(line_.program->position());
  const int32_t rank = mesh().shape().ranks()[static_cast<size_t>(line_.program->position())];
  const auto running = progress_.running.find(progress_.to_tell);
  if (running == progress_.running.end()) return {own + ", which has not begun to make it", rank};
  return {fmt::format("{}, whose source has run since {}", own, describe_time(mesh().loop().now() - running->second)),
          rank};
}

}  // namespace distag::spmd
