#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/fd_loop.h"
#include "transport/transport.h"

// The parts of the conformance suite of transports. A new transport is tested by one more TransportKind in
// transport_contract_test.cpp.
namespace distag::testing {

struct TransportKind {
  std::string name;
  std::function<std::unique_ptr<Transport>(FdLoop&)> make;
  std::function<std::string(Transport&)> address;      // a fresh one to listen at
  std::string foreign_address;                         // of another transport
  std::function<std::string(Transport&)> no_listener;  // an address without a listener
  bool reports_every_loss = false;
  std::function<std::unique_ptr<Transport>(FdLoop&)> make_dialling =
      nullptr;  // of the side that dials, where it differs
};

inline TransportKind dialling(TransportKind kind) {
  if (kind.make_dialling) kind.make = kind.make_dialling;
  return kind;
}

inline constexpr Nanos kPatience = 120 * kSecond;

// A loop on its thread with a transport on it.
class Side {
 public:
  explicit Side(const TransportKind& kind) : loop_("side", {}) {
    loop_.start();
    run([this, &kind] { transport_ = kind.make(loop_); });
  }
  ~Side() {
    run([this] { transport_.reset(); });
  }

  FdLoop& loop() { return loop_; }
  Transport& transport() { return *transport_; }

  // Runs the call on the loop and waits for its end; its Error comes out here.
  void run(std::function<void()> call) {
    auto done = Future<Unit>::make();
    loop_.post_or_drop([&call, done] {
      try {
        call();
      } catch (...) {
        done->fail(current_error());
        return;
      }
      done->complete(Unit{});
    });
    if (!wait(*done, kPatience)) std::abort();
    done->value();
  }

 private:
  FdLoop loop_;
  std::unique_ptr<Transport> transport_;
};

inline Frame make_frame(size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed + i * 7 + (i >> 8));
  return Frame::of(std::move(bytes));
}

inline Frame text_frame(const std::string& text) { return Frame::copy_of(text.data(), text.size()); }

inline std::string text_of(const Frame& frame) {
  return std::string(reinterpret_cast<const char*>(frame.data()), frame.size());
}

// The events of one endpoint, in order; filled on its loop, awaited by the test.
class Record {
 public:
  struct Event {
    std::string what;  // "connected" "message" "writable" "dropped" "refused" "denied" "lack"
    Frames frames;
    ConnectionToken from;
  };

  void add(Event event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  // Waits for the next event of that kind, leaving out others. An Event with an empty `what` when none comes.
  Event next(const std::string& what) {
    std::unique_lock<std::mutex> lock(mutex_);
    Event found;
    changed_.wait_for(lock, std::chrono::nanoseconds(kPatience), [this, &what, &found] {
      while (taken_ < events_.size()) {
        Event& event = events_[taken_++];
        if (event.what != what) continue;
        found = event;
        event.frames.clear();  // they are the taker's alone
        return true;
      }
      return false;
    });
    return found;
  }

  std::vector<std::string> all() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> names;
    for (const Event& event : events_) names.push_back(event.what);
    return names;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  size_t taken_ = 0;
};

inline ConnectionEvents recording(Record& record) {
  ConnectionEvents events;
  events.on_connected = [&record] { record.add({"connected", {}, {}}); };
  events.on_message = [&record](Frames frames) { record.add({"message", std::move(frames), {}}); };
  events.on_writable = [&record] { record.add({"writable", {}, {}}); };
  events.on_lack = [&record](const Error& why) { record.add({"lack", {text_frame(why.message())}, {}}); };
  events.on_dropped = [&record](bool refused) { record.add({refused ? "refused" : "dropped", {}, {}}); };
  return events;
}

inline AcceptorEvents recording_acceptor(Record& record) {
  AcceptorEvents events;
  events.on_message = [&record](const ConnectionToken& from, Frames frames) {
    record.add({"message", std::move(frames), from});
  };
  events.on_denied = [&record](const std::string& why) { record.add({"denied", {text_frame(why)}, {}}); };
  events.on_lack = [&record](const Error& why) { record.add({"lack", {text_frame(why.message())}, {}}); };
  return events;
}

// An acceptor of one side, with its record. Destroyed on the loop.
class Listening {
 public:
  Listening(Side& side, const std::string& address) : side_(side) {
    side_.run([this, &address] {
      acceptor_ = side_.transport().listen(address, recording_acceptor(record_));
      endpoint_ = acceptor_->endpoint();
    });
  }
  ~Listening() { close(); }

  void close() {
    side_.run([this] { acceptor_.reset(); });
  }
  bool close_some() {
    bool is_more = false;
    side_.run([this, &is_more] { is_more = acceptor_->close_some(); });
    return is_more;
  }
  bool reply(const ConnectionToken& to, Frames frames) {
    bool sent = false;
    side_.run([this, &to, &frames, &sent] { sent = acceptor_->reply(to, std::move(frames)); });
    return sent;
  }
  const std::string& endpoint() const { return endpoint_; }
  Record& record() { return record_; }
  Acceptor& acceptor() { return *acceptor_; }  // on the loop

 private:
  Side& side_;
  Record record_;
  std::unique_ptr<Acceptor> acceptor_;
  std::string endpoint_;
};

// A connection of one side, with its record. Destroyed on the loop.
class Dialled {
 public:
  Dialled(Side& side, const std::string& endpoint) : side_(side) {
    side_.run([this, &endpoint] { connection_ = side_.transport().dial(endpoint, recording(record_)); });
  }
  ~Dialled() { close(); }

  void close() {
    side_.run([this] { connection_.reset(); });
  }
  bool send(const Frames& frames) {
    bool sent = false;
    side_.run([this, &frames, &sent] { sent = connection_->send(frames); });
    return sent;
  }
  Record& record() { return record_; }
  Connection& connection() { return *connection_; }  // on the loop

 private:
  Side& side_;
  Record record_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace distag::testing
