#include "rpc/answer_sender.h"

#include <utility>
#include <vector>

#include "base/each_step.h"
#include "rpc/call_names.h"
#include "rpc/references.h"

namespace distag {
namespace {

constexpr Nanos kSendAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

void AnswerSender::send_refusal(const Peer& to, const Id& call, Error error, uint64_t taken) {
  assert_on_loop(shared_.environment.loop);
  wire::Reply reply;
  reply.call = call;
  reply.failed = true;
  reply.error = std::move(error.set_may_have_run(false).set_origin_rank(shared_.group->self.rank));
  reply.taken = taken;
  shared_.group->session->send(to.incarnation, std::move(reply));
}

void AnswerSender::send(const std::shared_ptr<IncomingCall>& call) {
  assert_on_loop(shared_.environment.loop);
  Answer answer = std::move(call->delivery().answer);
  wire::Reply reply;
  reply.call = call->id();
  if (answer.error) {
    reply.failed = true;
    reply.error = std::move(*answer.error);
    if (reply.error.origin_rank() < 0) reply.error.set_origin_rank(shared_.group->self.rank);
  }
  if (const auto kept = std::exchange(call->delivery().kept, nullptr)) {
    if (reply.failed) {
      EachStep each;
      each([this, &reply, &kept, &call] {
        Error failure = reply.error;
        kept->fail(failure.add_context(name_call(call->function(), call->request().label, shared_.group->self)));
      });
      if (!kept->is_done()) kept->fail(Error(Status::kOutOfMemory, "no memory"));
    } else {
      EachStep each;  // if a callback finds no memory, the answer still goes out
      each([&kept, &answer] { kept->complete(std::move(answer.value)); });
    }
    answer.original = Value();
  } else if (!reply.failed) {
    reply.result = std::move(answer.value);
    reply.packed = std::move(answer.packed);
    check_made(*call->peer(), reply);
  }
  send(*call, std::move(reply), std::move(answer.original), std::move(answer.share));
}

// The same check as for the arguments of a call.
void AnswerSender::check_made(const Peer& to, wire::Reply& reply) const {
  if (!reply.result.has_external()) return;
  try {
    shared_.references->check_made(to, reply.result);
  } catch (...) {
    reply.failed = true;
    reply.result = Value();
    reply.error = current_error();
    reply.error.set_may_have_run(true);
    if (reply.error.origin_rank() < 0) reply.error.set_origin_rank(shared_.group->self.rank);
  }
}

void AnswerSender::send(IncomingCall& call, wire::Reply reply, Value original, AnswerRoom::Share share) {
  reply.taken = call.room().taken();
  SendOptions options;
  options.on_acknowledged = [share = std::move(share)] {};
  if (call.context() || reply.result.has_external()) {
    auto held = std::static_pointer_cast<const IncomingCall>(call.shared_from_this());
    options.on_number = [this, held = std::move(held), original = std::move(original)](wire::Message& message) {
      auto& body = std::get<wire::Reply>(message.body);
      convert_reference(shared_, *held->peer(), body.result);
      if (held->context()) record(*held, body, original);
    };
  }
  const bool failed = reply.failed;
  try {
    shared_.group->session->send(call.peer()->incarnation, std::move(reply), std::move(options));
  } catch (...) {
    Error error = current_error();
    if (error.status() == Status::kDisconnected || error.status() == Status::kPeerRestarted) return;
    // If a failure cannot go out either, the caller is gone or there is no memory yet.
    if (failed && error.status() == Status::kOutOfMemory) return send_later(call);
    if (failed) return;
    EachStep each;
    each([this, &call, &error] { send_instead(call, std::move(error)); });
    if (each.has_failed()) send_later(call);
  }
}

void AnswerSender::send_instead(IncomingCall& call, Error error) {
  wire::Reply instead;
  instead.call = call.id();
  instead.failed = true;
  instead.error = std::move(error.add_context("the answer cannot travel").set_may_have_run(true));
  instead.error.set_origin_rank(shared_.group->self.rank);
  send(call, std::move(instead), Value(), {});
}

// Without any answer the caller would wait for ever.
void AnswerSender::send_later(IncomingCall& call) {
  Loop& loop = shared_.environment.loop;
  loop.start_timer(call.delivery().place, loop.now() + kSendAgain,
                   [this, held = std::static_pointer_cast<IncomingCall>(call.shared_from_this())] {
                     if (is_stopped_) return;
                     EachStep each;
                     each([this, &held] { send_instead(*held, Error(Status::kOutOfMemory, "no memory")); });
                     if (each.has_failed()) send_later(*held);
                   });
}

void AnswerSender::record(const IncomingCall& call, wire::Reply& reply, const Value& original) {
  try {
    std::vector<const Value*> values;
    if (!reply.failed) values.push_back(&original);
    reply.metadata = shared_.hook->on_send(call.context(), *call.peer(), values,
                                           name_call(call.function(), call.request().label, shared_.group->self), true);
    // A context that is unknown here, or over, has only the rank that the call named.
    reply.metadata.creator_rank = call.request().metadata.creator_rank;
  } catch (...) {
    reply.failed = true;
    reply.result = Value();
    reply.error = current_error();
    reply.error.set_may_have_run(true);
    if (reply.error.origin_rank() < 0) reply.error.set_origin_rank(shared_.group->self.rank);
  }
}

}  // namespace distag
