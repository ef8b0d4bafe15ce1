#include "wire/codec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "message_generated.h"
#include "tensor/access.h"
#include "tensor/shape_only.h"
#include "tensor/utf8.h"
#include "wire/checksum.h"
#include "wire/decoder.h"
#include "wire/encoder.h"
#include "wire/packed.h"

namespace distag::wire {
namespace {

// Room for additions when a message is numbered, which are autograd metadata: a bit per tensor, and some
// workers.
constexpr size_t kRoomForNumbering = 8192;

constexpr size_t kAlignment = 8;  // of a builder's memory

// The most bytes to copy or check on a loop.
constexpr size_t kQuickBytes = size_t{128} << 10;

// The header of a call, answer or gradient without its values.
constexpr size_t kHeaderBytes = 512;

constexpr const char* kPayloadAdvice = "send less at a time, or raise max_message_bytes on all workers";

// Memory for the builder on the stack; a larger header spills to the heap.
class StackRoom final : public flatbuffers::Allocator {
 public:
  static constexpr size_t kSize = 2048;

  uint8_t* allocate(size_t size) override {
    if (size <= kSize && !is_taken_) {
      is_taken_ = true;
      return room_;
    }
    return new uint8_t[size];
  }
  void deallocate(uint8_t* memory, size_t) override {
    if (memory == room_) {
      is_taken_ = false;
    } else {
      delete[] memory;
    }
  }

 private:
  alignas(16) uint8_t room_[kSize];
  bool is_taken_ = false;
};

// Memory at whose end the tail lies: the builder ends there, so a long header is written once, and stays in place.
class LongRoom final : public flatbuffers::Allocator {
 public:
  LongRoom(size_t size, std::span<const std::byte> tail)
      : size_(size), tail_(tail), block_(std::make_shared_for_overwrite<std::byte[]>(size + tail.size())) {
    std::memcpy(block_.get() + size, tail.data(), tail.size());
  }

  uint8_t* allocate(size_t size) override {
    if (size == size_ && !std::exchange(is_taken_, true)) return reinterpret_cast<uint8_t*>(block_.get());
    return new uint8_t[size];
  }
  void deallocate(uint8_t* memory, size_t) override {
    if (memory != reinterpret_cast<uint8_t*>(block_.get())) delete[] memory;
  }

  // The finished header, unless the room was too small for it.
  std::optional<Frame> header(const flatbuffers::FlatBufferBuilder& builder) const {
    const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
    if (begin + builder.GetSize() != block_.get() + size_) return std::nullopt;
    return Frame(begin, builder.GetSize() + tail_.size(), block_);
  }

 private:
  const size_t size_;
  const std::span<const std::byte> tail_;
  const std::shared_ptr<std::byte[]> block_;
  bool is_taken_ = false;
};

void check_size(const char* what, const Body& body, size_t size, size_t limit, const char* advice) {
  if (size <= limit) return;
  fail(Status::kInvalidArgument, "{} of {} bytes in its {} exceeds the limit of {}: {}", body_name(body), size, what,
       limit, advice);
}

void check_header_size(const Body& body, size_t size, size_t limit) {
  check_size("header", body, size, limit, "send long lists as a tensor, or as several messages");
}

Frame make_header(const flatbuffers::FlatBufferBuilder& builder, std::span<const std::byte> tail) {
  size_t size = builder.GetSize() + tail.size();
  auto block = std::make_shared_for_overwrite<std::byte[]>(size);
  std::memcpy(block.get(), builder.GetBufferPointer(), builder.GetSize());
  if (!tail.empty()) std::memcpy(block.get() + builder.GetSize(), tail.data(), tail.size());
  const std::byte* data = block.get();
  return Frame(data, size, std::move(block));
}

const protocol::Message& root_of(const std::byte* data) {
  return *flatbuffers::GetSizePrefixedRoot<protocol::Message>(data);
}

void finish(flatbuffers::FlatBufferBuilder& builder, uint64_t number, uint64_t ack,
            const std::vector<Transfer>& transfers, const EncodedUnion& body) {
  flatbuffers::Offset<flatbuffers::Vector<const protocol::Transfer*>> listed;
  if (!transfers.empty()) {
    std::vector<protocol::Transfer> structs;
    for (const Transfer& transfer : transfers) structs.emplace_back(transfer.id, transfer.frame);
    listed = builder.CreateVectorOfStructs(structs);
  }
  const protocol::Place place(number, ack);
  const protocol::Checksum unsealed(0);
  builder.FinishSizePrefixed(
      protocol::CreateMessage(builder, &place, listed, static_cast<protocol::Body>(body.type), body.offset, &unsealed),
      protocol::MessageIdentifier());
}

// Bodies on numbered streams, except those of the streams themselves.
bool may_be_long(protocol::Body type) {
  return type >= protocol::Body::Call && type != protocol::Body::Join && type != protocol::Body::Roster &&
         type != protocol::Body::Long;
}

// The header frame that stands for a long header.
Frame make_long_header(uint64_t number, uint64_t ack, const std::vector<Transfer>& transfers, uint64_t transfer) {
  StackRoom room;
  flatbuffers::FlatBufferBuilder builder(StackRoom::kSize, &room);
  const EncodedUnion body{static_cast<uint8_t>(protocol::Body::Long), protocol::CreateLong(builder, transfer).o};
  finish(builder, number, ack, transfers, body);
  return make_header(builder, {});
}

// nullptr: the values are encoded with the message.
const Packed* packed_of(const Body& body) {
  if (const auto* call = std::get_if<Call>(&body)) return call->packed.get();
  const auto* reply = std::get_if<Reply>(&body);
  return reply == nullptr || reply->failed ? nullptr : reply->packed.get();
}

Encoded encode_parts(uint64_t number, uint64_t ack, const std::vector<Transfer>& transfers, const Body& body,
                     const Limits& limits) {
  StackRoom room;
  std::optional<LongRoom> long_room;
  size_t room_bytes = StackRoom::kSize;
  const Packed* const packed = packed_of(body);
  if (packed != nullptr) {
    room_bytes = (packed->table_bytes() + kRoomForNumbering) / kAlignment * kAlignment;  // as the builder rounds it
    long_room.emplace(room_bytes, packed->tail());
  }
  flatbuffers::FlatBufferBuilder builder(room_bytes,
                                         long_room ? static_cast<flatbuffers::Allocator*>(&*long_room) : &room);
  PayloadWriter payload;
  const EncodedUnion encoded_body = encode_body(builder, payload, body);
  finish(builder, number, ack, transfers, encoded_body);

  const std::span<const std::byte> tail = packed != nullptr ? packed->tail() : payload.tail();
  const size_t header_bytes = builder.GetSize() + tail.size();
  Encoded encoded;
  encoded.is_long =
      header_bytes > limits.max_header_bytes && may_be_long(static_cast<protocol::Body>(encoded_body.type));
  check_header_size(body, header_bytes, encoded.is_long ? limits.max_long_header_bytes : limits.max_header_bytes);
  std::optional<Frame> in_place = long_room ? long_room->header(builder) : std::nullopt;
  encoded.header = in_place ? std::move(*in_place) : make_header(builder, tail);
  encoded.payload_bytes = packed != nullptr ? packed->frame_bytes() : payload.frame_bytes();
  encoded.payload = packed != nullptr ? packed->frames() : payload.take_frames();
  if (const auto* chunk = std::get_if<Chunk>(&body); chunk != nullptr && !chunk->abandoned) {
    encoded.payload.push_back(chunk->piece);
    encoded.payload_bytes = chunk->piece.size();
  }
  check_size("payload", body, header_bytes + encoded.payload_bytes, limits.max_message_bytes, kPayloadAdvice);
  if (encoded.is_long) {
    encoded.payload_bytes += encoded.header.size();
    encoded.payload.insert(encoded.payload.begin(), std::move(encoded.header));
    encoded.header = make_long_header(number, ack, transfers, 0);
  }
  return encoded;
}

// The rough size of a call, answer or gradient of a few plain values, whose header is small in any case.
std::optional<size_t> size_of_simple(const Body& body) {
  constexpr size_t kFewValues = 32;
  auto size_of = [](const Value& value) -> std::optional<size_t> {
    switch (value.kind()) {
      case ValueKind::kTensor:
        return value.as_tensor() ? std::optional(value.as_tensor().byte_size()) : std::nullopt;
      case ValueKind::kText:
        return value.as_text().size();
      case ValueKind::kBytes:
        return value.as_bytes().size();
      case ValueKind::kNull:
      case ValueKind::kBool:
      case ValueKind::kInt64:
      case ValueKind::kFloat64:
        return 0;
      default:
        return std::nullopt;
    }
  };
  auto size_of_all = [&size_of](const Values& values) -> std::optional<size_t> {
    if (values.size() > kFewValues) return std::nullopt;
    size_t total = kHeaderBytes;
    for (const Value& value : values) {
      std::optional<size_t> size = size_of(value);
      if (!size) return std::nullopt;
      total += *size;
    }
    return total;
  };
  if (const auto* call = std::get_if<Call>(&body)) {
    bool is_plain = call->packed == nullptr && call->function.size() <= kMaxNameBytes && !call->function.empty() &&
                    call->metadata.joined.empty() && call->function.find('\0') == std::string::npos;
    return is_plain && is_valid_utf8(call->function) ? size_of_all(call->args) : std::nullopt;
  }
  if (const auto* reply = std::get_if<Reply>(&body)) {
    if (reply->failed || reply->packed != nullptr || !reply->metadata.joined.empty()) return std::nullopt;
    std::optional<size_t> size = size_of(reply->result);
    return size ? std::optional(kHeaderBytes + *size) : std::nullopt;
  }
  if (const auto* grad = std::get_if<Grad>(&body)) {
    return grad->recording.pair ? std::nullopt : size_of_all(grad->gradients);
  }
  return std::nullopt;
}

// A copy of the header that `change` has changed.
template <typename Change>
Frame changed(const Frame& header, const Change& change) {
  auto block = std::make_shared_for_overwrite<std::byte[]>(header.size());
  std::memcpy(block.get(), header.data(), header.size());
  change(block.get());
  const std::byte* data = block.get();
  return Frame(data, header.size(), std::move(block));
}

// The offset of a struct of the message in its header frame.
size_t place_in(const std::byte* header, const void* part) {
  return static_cast<size_t>(reinterpret_cast<const std::byte*>(part) - header);
}

// The checksum of all frames that travel; the bytes at `hole`, which hold the checksum itself, count as 0.
uint32_t checksum_of(std::span<const std::byte> header, size_t hole, std::span<const Frame> payload) {
  constexpr std::array<std::byte, sizeof(protocol::Checksum)> kZero = {};
  Checksum sum;
  sum.add(header.first(hole)).add(kZero).add(header.subspan(hole + kZero.size()));
  for (const Frame& frame : payload) {
    if (!frame.is_loan()) sum.add(frame);
  }
  return sum.value();
}

// The first message of an older version has no checksum, and is read only if it leads to a refusal.
bool is_refusal_of_version(const protocol::Message& message) {
  if (const auto* hello = message.body_as_Hello()) return hello->protocol() != kProtocolVersion;
  if (const auto* join = message.body_as_Join()) return join->protocol() != kProtocolVersion;
  if (const auto* refuse = message.body_as_Refuse()) return refuse->reason() == protocol::RefuseReason::Version;
  if (const auto* roster = message.body_as_Roster()) return roster->error() != nullptr;
  return false;
}

}  // namespace

Encoded encode(const Message& message, const Limits& limits) {
  return encode_parts(message.number, message.ack, message.transfers, message.body, limits);
}

Payload payload_of(const Body& body, const Limits& limits) {
  if (const Packed* packed = packed_of(body)) {
    const size_t header_bytes = packed->header_bytes() + kHeaderBytes;
    return {packed->frames(), header_bytes > limits.max_header_bytes ? 0 : header_bytes};
  }
  Encoded encoded = encode_parts(0, 0, {}, body, limits);
  if (encoded.is_long) encoded.payload.erase(encoded.payload.begin());
  return {std::move(encoded.payload), encoded.header.size()};
}

Frame encode_long(const Message& message, uint64_t transfer) {
  return make_long_header(message.number, message.ack, message.transfers, transfer);
}

Frame with_numbers(const Frame& header, uint64_t number, uint64_t ack) {
  return changed(header, [number, ack](std::byte* block) {
    const protocol::Place fresh(number, ack);
    std::memcpy(block + place_in(block, root_of(block).place()), &fresh, sizeof fresh);
  });
}

namespace {

// Checks the structure of a header in aligned memory.
HeaderView verified(const std::byte* data, size_t size) {
  uint32_t prefix = 0;
  if (size >= sizeof prefix) std::memcpy(&prefix, data, sizeof prefix);
  if (size < sizeof prefix || prefix > size - sizeof prefix) malformed("a header that is cut off");
  const HeaderView view{data, sizeof prefix + prefix, size - sizeof prefix - prefix};
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(data), view.size, kMaxTableDepth,
                                 static_cast<flatbuffers::uoffset_t>(view.size / kMinTableBytes));
  if (!protocol::VerifySizePrefixedMessageBuffer(verifier)) malformed("a header that is no message of distag");
  return view;
}

}  // namespace

Frame seal(const Frame& header, std::span<const Frame> payload) {
  return changed(header, [&header, &payload](std::byte* block) {
    const size_t hole = place_in(block, root_of(block).checksum());
    const protocol::Checksum fresh(checksum_of({block, header.size()}, hole, payload));
    std::memcpy(block + hole, &fresh, sizeof fresh);
  });
}

Frames pack(const Message& message, const Limits& limits, const Transport& transport) {
  Encoded encoded = encode(message, limits);
  Frames frames;
  frames.reserve(1 + encoded.payload.size());
  frames.push_back(transport.is_exact() ? std::move(encoded.header) : seal(encoded.header, encoded.payload));
  for (Frame& frame : encoded.payload) frames.push_back(std::move(frame));
  return frames;
}

Message unpack(const Frames& frames, const Limits& limits, const Transport& transport) {
  const Arrival arrival(frames, limits, transport);
  return arrival.decode(Frames(frames.begin() + 1, frames.end()));
}

Arrival::Arrival(const Frame& header, const Limits& limits, std::span<std::byte> room)
    : max_long_header_bytes_(limits.max_long_header_bytes) {
  read(header, limits, room);
}

Arrival::Arrival(const Frames& frames, const Limits& limits, const Transport& transport, std::span<std::byte> room)
    : max_long_header_bytes_(limits.max_long_header_bytes) {
  if (frames.empty()) malformed("no header");
  if (transport.is_exact()) {
    read(frames.front(), limits, room);
    return;
  }
  try {
    read(frames.front(), limits, room);
  } catch (const Violation& error) {
    throw Damaged(error.message());
  }
  check_seal(frames);
}

void Arrival::check_seal(const Frames& frames) const {
  const protocol::Message& root = root_of(view_.data);
  if (root.checksum() == nullptr) {
    if (is_refusal_of_version(root)) return;
    throw Damaged("a message without a checksum");
  }
  // The bytes of a lost frame can be compared with nothing; the message is refused.
  const auto is_lost = [](const Frame& frame) { return frame.is_lost() && !frame.is_loan(); };
  if (std::any_of(frames.begin(), frames.end(), is_lost)) return;
  const std::span<const std::byte> header(view_.data, view_.size + view_.tail_size);
  const uint32_t sum = checksum_of(header, place_in(view_.data, root.checksum()), std::span(frames).subspan(1));
  if (sum != root.checksum()->crc32c()) throw Damaged("a message that was changed on its way");
}

void Arrival::read(const Frame& header, const Limits& limits, std::span<std::byte> room) {
  if (header.size() > limits.max_header_bytes) {
    malformed("a header of {} bytes, more than {}", header.size(), limits.max_header_bytes);
  }
  std::byte* copy = room_;
  if (header.size() > kRoom && header.size() <= room.size()) {
    copy = room.data();
  } else if (header.size() > kRoom) {
    large_.resize(header.size());  // aligned like any allocation
    copy = large_.data();
  }
  if (header.size() != 0) std::memcpy(copy, header.data(), header.size());
  view_ = verified(copy, header.size());
  if (is_long() && view_.tail_size != 0) malformed("a LONG with a tail");
  check_transfers();
}

uint64_t Arrival::number() const { return root_of(view_.data).place()->number(); }
uint64_t Arrival::ack() const { return root_of(view_.data).place()->ack(); }

bool Arrival::is_chunk() const { return root_of(view_.data).body_type() == protocol::Body::Chunk; }

size_t Arrival::transfer_count() const {
  const auto* listed = root_of(view_.data).transfers();
  return listed == nullptr ? 0 : listed->size();
}

Transfer Arrival::transfer(size_t index) const {
  const protocol::Transfer& listed = *root_of(view_.data).transfers()->Get(static_cast<uint32_t>(index));
  return {listed.id(), listed.frame()};
}

void Arrival::check_transfers() const {
  if (transfer_count() == 0) return;
  if (is_chunk()) malformed("a chunk that names a transfer");
  check_aligned(root_of(view_.data).transfers()->Data(), alignof(protocol::Transfer));
  for (size_t i = 0; i < transfer_count(); ++i) {
    if (transfer(i).id == 0) malformed("a transfer 0");
    if (i > 0 && transfer(i).frame <= transfer(i - 1).frame) malformed("transfers out of order");
  }
}

bool Arrival::is_long() const { return root_of(view_.data).body_type() == protocol::Body::Long; }

uint64_t Arrival::long_transfer() const { return is_long() ? root_of(view_.data).body_as_Long()->transfer() : 0; }

bool Arrival::takes_long(const Frames& payload) const {
  if (is_long()) return true;
  size_t bytes = 0;
  Loans loans = Loans::kNone;
  for (const Frame& frame : payload) {
    bytes += frame.size();
    if (!frame.is_loan()) continue;
    const bool is_odd = reinterpret_cast<uintptr_t>(frame.data()) % alignof(double) != 0;
    loans = is_odd || loans == Loans::kOdd ? Loans::kOdd : Loans::kAligned;
  }
  if (bytes <= kQuickBytes) return false;
  const protocol::Message& root = root_of(view_.data);
  const auto work_of = [loans](const auto* types, const auto* values) {
    size_t work = 0;
    for (unsigned i = 0; values != nullptr && i < values->size(); ++i) {
      work += decode_work(static_cast<uint8_t>(types->Get(i)), values->Get(i), loans);
    }
    return work;
  };
  if (const auto* call = root.body_as_Call()) return work_of(call->args_type(), call->args()) > kQuickBytes;
  if (const auto* grad = root.body_as_Grad()) {
    return loans != Loans::kNone && work_of(grad->gradients_type(), grad->gradients()) > kQuickBytes;
  }
  if (const auto* part = root.body_as_Part()) return work_of(part->pieces_type(), part->pieces()) > kQuickBytes;
  const auto* reply = root.body_as_Reply();
  return reply != nullptr &&
         decode_work(static_cast<uint8_t>(reply->result_type()), reply->result(), loans) > kQuickBytes;
}

Message Arrival::decode(const Frames& payload) const { return decode(payload, false); }

Message Arrival::decode_outline(const Frame& long_header) const {
  return decode({&long_header, is_long() ? size_t{1} : 0}, true);
}

// A frame that is lost has no bytes; as a chunk it is a matter of its transfer.
Message Arrival::decode(std::span<const Frame> payload, bool is_outline) const {
  const auto is_lost = [](const Frame& frame) { return frame.is_lost(); };
  if (!is_chunk() && std::any_of(payload.begin(), payload.end(), is_lost)) throw std::bad_alloc();
  Message message;
  message.number = number();
  message.ack = ack();
  message.transfers.reserve(transfer_count());
  for (size_t i = 0; i < transfer_count(); ++i) message.transfers.push_back(transfer(i));
  message.body = is_long() ? decode_long(payload, is_outline) : decode_body(view_, payload, is_outline);
  return message;
}

Body Arrival::decode_long(std::span<const Frame> payload, bool is_outline) const {
  if (payload.empty()) malformed("a LONG without its header");
  const Frame& header = payload.front();
  if (header.size() > max_long_header_bytes_) {
    malformed("a long header of {} bytes, more than {}", header.size(), max_long_header_bytes_);
  }
  // Received frames may not be aligned.
  const auto aligned = std::make_unique_for_overwrite<std::byte[]>(header.size());
  if (header.size() != 0) std::memcpy(aligned.get(), header.data(), header.size());
  const HeaderView view = verified(aligned.get(), header.size());
  if (!may_be_long(root_of(view.data).body_type())) malformed("a LONG for a message that is never one");
  return decode_body(view, payload.subspan(1), is_outline);
}

Body Arrival::decode_body(const HeaderView& view, std::span<const Frame> payload, bool is_outline) {
  const protocol::Message& root = root_of(view.data);
  PayloadReader reader({view.data + view.size, view.tail_size}, payload);
  DecodeState state(reader, view.size, is_outline);
  Body body = wire::decode_body(state, static_cast<uint8_t>(root.body_type()), root.body());
  if (!is_outline && !reader.is_used_up()) malformed("{} with payload that belongs to nothing", body_name(body));
  if (auto* call = std::get_if<Call>(&body)) {
    call->bytes = view.size + view.tail_size;
    for (const Frame& frame : payload) call->bytes += frame.size();
  }
  return body;
}

Message decode(const Frame& header, const Frames& payload, const Limits& limits) {
  size_t size = header.size();
  for (const Frame& frame : payload) {
    if (frame.size() > limits.max_message_bytes || (size += frame.size()) > limits.max_message_bytes) {
      malformed("more than {} bytes in all", limits.max_message_bytes);
    }
  }
  return Arrival(header, limits).decode(payload);
}

size_t check(const Body& body, const Limits& limits) {
  if (std::optional<size_t> size = size_of_simple(body)) {
    check_size("payload", body, *size, limits.max_message_bytes, kPayloadAdvice);
    return *size;
  }
  Limits while_unnumbered = limits;
  while_unnumbered.max_long_header_bytes -= std::min(kRoomForNumbering, limits.max_long_header_bytes);
  if (const Packed* packed = packed_of(body)) {
    const size_t header_bytes = packed->header_bytes() + kHeaderBytes;
    check_header_size(body, header_bytes, while_unnumbered.max_long_header_bytes);
    check_size("payload", body, header_bytes + packed->frame_bytes(), limits.max_message_bytes, kPayloadAdvice);
    return header_bytes + packed->frame_bytes();
  }
  Encoded encoded = encode_parts(0, 0, {}, body, while_unnumbered);
  return encoded.header.size() + encoded.payload_bytes;
}

Values prepare(const Values& values) {
  for (const Value& value : values) {
    value.for_each_tensor([](const Tensor& tensor) {
      const ShardSlot* slot = tensor ? tensor.shard_slot() : nullptr;
      if (slot == nullptr) return;
      check_not_shape_only(tensor);
      fail(Status::kInvalidArgument,
           "{} is sharded as {} and does not travel: send this worker's own part (to_local) or the whole (gather)",
           describe(tensor), slot->describe());
    });
  }
  Values prepared = hold(values);
  for (Value& value : prepared) {
    value = value.map_tensors([](const Tensor& tensor) { return tensor ? tensor.contiguous().snapshot() : tensor; });
  }
  return prepared;
}

Value prepare(const Value& value) { return std::move(prepare(Values{value}).front()); }

}  // namespace distag::wire
