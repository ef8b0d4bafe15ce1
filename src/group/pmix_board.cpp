#include "group/pmix_board.h"

#include <pmix.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "base/process.h"
#include "base/shared_library.h"

namespace distag {

// An exchange: shared by its thread, the threads of libpmix and the loop.
struct PmixBoard::Shared {
  std::string key;
  std::string text;
  std::vector<std::string> names;
  Parker parker;  // for the exchange's thread
  std::atomic<bool> is_withdrawn = false;
  std::atomic<bool> is_fenced = false;
  std::atomic<pmix_status_t> fence_status = PMIX_SUCCESS;

  Mutex mutex;
  std::set<int32_t> present GUARDED_BY(mutex);
  size_t asked GUARDED_BY(mutex) = 0;  // requests without an answer so far

  // Used on the loop.
  Done done;
  OnMissing on_missing;
};

namespace {

using Shared = PmixBoard::Shared;

constexpr Nanos kFirstLookForMissing = 500 * kMillisecond;  // before the first query for missing processes
constexpr Nanos kLongestWaitForLook = 8 * kSecond;
constexpr int kSecondsOfALook = 1;
constexpr int kSecondsOfAGet = 10;  // for data that is there already
constexpr size_t kLongestText = 65536;
constexpr int64_t kMostProcesses = 65536;

// Data that libpmix reads until it calls back. It owns itself, as the callback may never come.
struct Asked {
  std::shared_ptr<Shared> shared;
  int32_t rank = -1;
  pmix_proc_t process = {};
  pmix_info_t info = {};
};

struct FreePmixValue {
  void operator()(pmix_value_t* value) const {
    if (value->type == PMIX_STRING) std::free(value->data.string);
    std::free(value);
  }
};
using PmixValue = std::unique_ptr<pmix_value_t, FreePmixValue>;

// libpmix as loaded into this process, connected to the server that its launcher runs on this machine.
class Pmix {
 public:
  explicit Pmix(const std::vector<std::string>& names) : library_(names) {
    library_.find("PMIx_Init", init_);
    library_.find("PMIx_Finalize", finalize_);
    library_.find("PMIx_Put", put_);
    library_.find("PMIx_Commit", commit_);
    library_.find("PMIx_Fence_nb", fence_);
    library_.find("PMIx_Get", get_);
    library_.find("PMIx_Get_nb", begin_get_);
    library_.find("PMIx_Error_string", text_of_);
    check(init_(&self_, nullptr, 0), "PMIx_Init");
  }
  ~Pmix() {
    if (!is_of_parent()) finalize_(nullptr, 0);
  }
  Pmix(const Pmix&) = delete;
  Pmix& operator=(const Pmix&) = delete;

  // A forked child does not have the threads of libpmix.
  bool is_of_parent() const { return process_generation() != generation_; }
  uint64_t count_exchange() { return ++exchanges_; }
  int32_t rank() const { return static_cast<int32_t>(self_.rank); }

  void put(const std::string& key, const std::string& text) const {
    std::string kept = text;
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = kept.data();
    check(put_(PMIX_GLOBAL, key.c_str(), &value), "PMIx_Put");
    check(commit_(), "PMIx_Commit");
  }

  // The fence also distributes all texts.
  void begin_fence(std::unique_ptr<Asked> asked, pmix_op_cbfunc_t done) const {
    asked->process = process(PMIX_RANK_WILDCARD);
    asked->info = flag(PMIX_COLLECT_DATA);
    const pmix_status_t status = fence_(&asked->process, 1, &asked->info, 1, done, asked.get());
    if (status == PMIX_OPERATION_SUCCEEDED) return done(PMIX_SUCCESS, asked.release());  // the fence is over already
    check(status, "PMIx_Fence");
    (void)asked.release();
  }

  // Waits a while for the text of a process that has not put it.
  void begin_get(std::unique_ptr<Asked> asked, pmix_value_cbfunc_t done) const {
    asked->process = process(static_cast<pmix_rank_t>(asked->rank));
    asked->info = patience(kSecondsOfALook);
    check(begin_get_(&asked->process, asked->shared->key.c_str(), &asked->info, 1, done, asked.get()), "PMIx_Get");
    (void)asked.release();
  }

  // The text that the process of that rank has put. Empty: none.
  std::string get_text(int32_t rank, const std::string& key) const {
    return text_of(get(static_cast<pmix_rank_t>(rank), key.c_str(), patience(kSecondsOfAGet)), key);
  }

  // A text that the launcher has about the job. Empty: none.
  std::string get_job_text(const char* key) const {
    return text_of(get(PMIX_RANK_WILDCARD, key, patience(kSecondsOfAGet)), key);
  }

  static std::string text_of(const PmixValue& value, const std::string& key) {
    if (value == nullptr || value->type != PMIX_STRING || value->data.string == nullptr) return {};
    const size_t size = strnlen(value->data.string, kLongestText + 1);
    if (size > kLongestText) fail(Status::kProtocol, "PMIx: \"{}\" is longer than 64 KiB", key);
    return {value->data.string, size};
  }

  std::optional<int64_t> get_job_number(const char* key) const { return get_number(PMIX_RANK_WILDCARD, key); }
  std::optional<int64_t> get_own_number(const char* key) const { return get_number(self_.rank, key); }

  std::optional<int64_t> get_number(pmix_rank_t rank, const char* key) const {
    const PmixValue value = get(rank, key, patience(kSecondsOfAGet));
    if (value == nullptr) return std::nullopt;
    switch (value->type) {
      case PMIX_UINT16:
        return value->data.uint16;
      case PMIX_UINT32:
        return value->data.uint32;
      case PMIX_INT:
        return value->data.integer;
      case PMIX_INT32:
        return value->data.int32;
      case PMIX_UINT:
        return value->data.uint;
      default:
        return std::nullopt;
    }
  }

  int64_t job_size() const {
    const std::optional<int64_t> size = get_job_number(PMIX_JOB_SIZE);
    if (!size) fail(Status::kDisconnected, "PMIx: the launcher does not tell the size of the job");
    if (*size < 1 || *size > kMostProcesses || rank() < 0 || rank() >= *size) {
      fail(Status::kProtocol, "PMIx: rank {} is not in a job of {}", rank(), *size);
    }
    return *size;
  }

 private:
  pmix_proc_t process(pmix_rank_t rank) const {
    pmix_proc_t process = self_;
    process.rank = rank;
    return process;
  }

  static pmix_info_t flag(const char* key) {
    pmix_info_t info{};
    std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
    info.value.type = PMIX_BOOL;
    info.value.data.flag = true;
    return info;
  }

  static pmix_info_t patience(int seconds) {
    pmix_info_t info = flag(PMIX_TIMEOUT);
    info.value.type = PMIX_INT;
    info.value.data.integer = seconds;
    return info;
  }

  PmixValue get(pmix_rank_t rank, const char* key, const pmix_info_t& how) const {
    const pmix_proc_t other = process(rank);
    pmix_value_t* value = nullptr;
    const pmix_status_t status = get_(&other, key, &how, 1, &value);
    return PmixValue(status == PMIX_SUCCESS ? value : nullptr);
  }

  void check(pmix_status_t status, const char* what) const {
    if (status == PMIX_SUCCESS) return;
    if (status == PMIX_ERR_NOMEM || status == PMIX_ERR_OUT_OF_RESOURCE) throw std::bad_alloc();
    const char* const text = text_of_(status);
    fail(Status::kDisconnected, "{} of PMIx: {}: no launcher serves this process, or it has gone", what,
         text == nullptr ? "" : text);
  }

  const SharedLibrary library_;
  decltype(&PMIx_Init) init_ = nullptr;
  decltype(&PMIx_Finalize) finalize_ = nullptr;
  decltype(&PMIx_Put) put_ = nullptr;
  decltype(&PMIx_Commit) commit_ = nullptr;
  decltype(&PMIx_Fence_nb) fence_ = nullptr;
  decltype(&PMIx_Get) get_ = nullptr;
  decltype(&PMIx_Get_nb) begin_get_ = nullptr;
  decltype(&PMIx_Error_string) text_of_ = nullptr;
  const uint32_t generation_ = process_generation();
  std::atomic<uint64_t> exchanges_ = 0;
  pmix_proc_t self_{};
};

Error describe(const Error& error) {
  if (error.status() != Status::kUnsupported) return error;
  return Error(
      Status::kUnsupported,
      "this machine lacks libpmix, install Debian's package libpmix2, or set DISTAG_RANK, DISTAG_WORLD_SIZE and "
      "DISTAG_RENDEZVOUS (" +
          error.message() + ")");
}

void on_pmix_fenced(pmix_status_t status, void* data) {
  const std::unique_ptr<Asked> asked(static_cast<Asked*>(data));
  asked->shared->fence_status = status;
  asked->shared->is_fenced = true;
  asked->shared->parker.unpark();
}

void on_pmix_got(pmix_status_t status, pmix_value_t* /*value*/, void* data) {
  const std::unique_ptr<Asked> asked(static_cast<Asked*>(data));
  {
    MutexLock lock(asked->shared->mutex);
    if (status == PMIX_SUCCESS) asked->shared->present.insert(asked->rank);
    --asked->shared->asked;
  }
  asked->shared->parker.unpark();
}

// PMIx serves a process once: for the others, a process that disconnects is gone, even if it connects again. So the
// connection lasts as long as the process, or until distag is unloaded.
std::shared_ptr<Pmix> connect(const std::vector<std::string>& names) {
  struct Kept {
    Mutex mutex;
    std::shared_ptr<Pmix> pmix GUARDED_BY(mutex);
  };
  if (std::getenv(kPmix.seen_by) == nullptr) {
    fail(Status::kDisconnected, "{} is not set: no launcher that speaks PMIx serves this process", kPmix.seen_by);
  }
  // Checked before the lock: a forked child may find the lock held for ever by a thread of its parent.
  constinit static std::atomic<uint32_t> begun_in{0};
  uint32_t begun = 0;
  if (!begun_in.compare_exchange_strong(begun, process_generation()) && begun != process_generation()) {
    fail(Status::kDisconnected,
         "PMIx serves the parent of this process, not a child that was forked: ask the parent, or start the child by "
         "exec");
  }
  static Kept kept;
  MutexLock lock(kept.mutex);
  if (kept.pmix == nullptr) kept.pmix = std::make_shared<Pmix>(names);
  return kept.pmix;
}

// Runs on the thread of the exchange.
class PmixExchange {
 public:
  PmixExchange(Loop& loop, const std::shared_ptr<Shared>& shared)
      : loop_(loop), shared_(shared), pmix_(connect(shared->names)), size_(static_cast<int32_t>(pmix_->job_size())) {}

  // Returns nothing once it is withdrawn.
  std::optional<JobBoard::Outcome> run() {
    // Other processes may cache a text, which is never replaced there, so each exchange has a key of its own.
    shared_->key += fmt::format(".{}", pmix_->count_exchange());
    pmix_->put(shared_->key, shared_->text);
    pmix_->begin_fence(std::make_unique<Asked>(Asked{shared_}), on_pmix_fenced);
    Nanos pause = kFirstLookForMissing;
    Nanos look = clock_.now() + pause;
    while (!shared_->is_fenced) {
      if (shared_->is_withdrawn) return std::nullopt;
      if (shared_->parker.park(look)) continue;
      look_for_missing();
      pause = std::min(2 * pause, kLongestWaitForLook);
      look = clock_.now() + pause;
    }
    if (shared_->fence_status != PMIX_SUCCESS) {
      fail(Status::kDisconnected,
           "PMIx: the launcher ended the exchange of addresses ({}): a process of the job has gone",
           static_cast<int>(shared_->fence_status));
    }
    JobBoard::Outcome outcome;
    outcome.rank = pmix_->rank();
    for (int32_t rank = 0; rank < size_; ++rank) {
      outcome.texts.push_back(pmix_->get_text(rank, shared_->key));
    }
    return outcome;
  }

 private:
  void look_for_missing() {
    for (int32_t rank = 0; rank < size_; ++rank) {
      {
        MutexLock lock(shared_->mutex);
        if (shared_->present.count(rank) != 0) continue;
        ++shared_->asked;
      }
      pmix_->begin_get(std::make_unique<Asked>(Asked{shared_, rank}), on_pmix_got);
    }
    while (!shared_->is_fenced && !shared_->is_withdrawn && has_asked()) shared_->parker.park();
    std::vector<int32_t> missing;
    {
      MutexLock lock(shared_->mutex);
      if (shared_->asked != 0) return;
      for (int32_t rank = 0; rank < size_; ++rank) {
        if (shared_->present.count(rank) == 0) missing.push_back(rank);
      }
    }
    loop_.post_or_drop([shared = shared_, missing = std::move(missing)]() mutable {
      if (!shared->is_withdrawn && shared->on_missing) shared->on_missing(std::move(missing));
    });
  }

  bool has_asked() {
    MutexLock lock(shared_->mutex);
    return shared_->asked != 0;
  }

  Loop& loop_;
  const std::shared_ptr<Shared> shared_;
  const SteadyClock clock_;
  const std::shared_ptr<Pmix> pmix_;
  const int32_t size_;
};

void run_exchange(Loop& loop, const std::shared_ptr<Shared>& shared) {
  std::optional<JobBoard::Outcome> outcome;
  try {
    outcome = PmixExchange(loop, shared).run();
  } catch (...) {
    outcome.emplace().error = describe(current_error());
  }
  if (!outcome) return;
  loop.post_or_drop([shared, outcome = std::move(*outcome)]() mutable {
    if (!shared->is_withdrawn) std::exchange(shared->done, {})(std::move(outcome));
  });
}

// The first host in "n1,n2" whose index is not `own`.
std::string other_of(const std::string& nodes, int64_t own) {
  const size_t comma = nodes.find(',');
  if (comma == std::string::npos) return {};
  if (own != 0) return nodes.substr(0, comma);
  return nodes.substr(comma + 1, nodes.find(',', comma + 1) - comma - 1);
}

}  // namespace

std::vector<std::string> PmixBoard::libraries() { return {"libpmix.so.2"}; }

PmixBoard::PmixBoard(Loop& loop, ThreadHooks hooks, std::vector<std::string> names)
    : loop_(loop), hooks_(std::move(hooks)), names_(std::move(names)) {}

PmixBoard::~PmixBoard() { end_thread(); }

void PmixBoard::exchange(const std::string& key, const std::string& text, Done done, OnMissing on_missing) {
  end_thread();
  auto shared = std::make_shared<Shared>();
  shared->key = key;
  shared->text = text;
  shared->names = names_;
  shared->done = std::move(done);
  shared->on_missing = std::move(on_missing);
  thread_ = start_thread("distag-pmix", hooks_, [&loop = loop_, shared] { run_exchange(loop, shared); });
  shared_ = std::move(shared);
}

void PmixBoard::withdraw() {
  if (shared_ == nullptr) return;
  shared_->is_withdrawn = true;
  shared_->parker.unpark();
  shared_->done = {};
  shared_->on_missing = {};
  shared_.reset();
}

void PmixBoard::end_thread() {
  withdraw();
  if (thread_.joinable()) thread_.join();
}

PmixPlace ask_pmix(const std::vector<std::string>& names) {
  try {
    const std::shared_ptr<Pmix> connected = connect(names);
    const Pmix& pmix = *connected;
    PmixPlace told;
    told.place.launcher = kPmix.name;
    told.place.rank = pmix.rank();
    told.place.world_size = static_cast<int32_t>(pmix.job_size());
    const int64_t local_size = pmix.get_job_number(PMIX_LOCAL_SIZE).value_or(0);
    const int64_t local_rank = pmix.get_own_number(PMIX_LOCAL_RANK).value_or(-1);
    if (local_rank >= 0 && local_rank < local_size && local_size <= told.place.world_size) {
      told.place.local_size = static_cast<int32_t>(local_size);
      told.place.local_rank = static_cast<int32_t>(local_rank);
    }
    const int64_t nodes = pmix.get_job_number(PMIX_NUM_NODES).value_or(0);
    const int64_t node = pmix.get_job_number(PMIX_NODEID).value_or(-1);
    if (nodes > 0 && node >= 0 && node < nodes) {
      told.place.node_count = static_cast<int32_t>(nodes);
      told.place.node = static_cast<int32_t>(node);
    }
    if (nodes != 1) told.other_node = other_of(pmix.get_job_text(PMIX_NODE_LIST), node);
    return told;
  } catch (...) {
    throw describe(current_error());
  }
}

}  // namespace distag
