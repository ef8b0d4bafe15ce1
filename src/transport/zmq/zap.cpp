#include "transport/zmq/zap.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "transport/key_ring.h"
#include "transport/zmq/libzmq.h"

namespace distag {
namespace {

constexpr const char* kEndpoint = "inproc://zeromq.zap.01";
constexpr std::string_view kVersion = "1.0";
constexpr size_t kPartsOfRequest = 7;  // delimiter, version, id, domain, address, routing id, mechanism
constexpr size_t kMostPartBytes = 255;
constexpr int kRequestsPerTurn = 64;

template <typename Number>
bool parse_number(std::string_view text, Number& number, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::string to_hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<CurveKey> key_of_hex(std::string_view text) {
  CurveKey key{};
  if (text.size() != 2 * key.size()) return std::nullopt;
  for (size_t i = 0; i < key.size(); ++i) {
    if (!parse_number(text.substr(2 * i, 2), key[i], 16)) return std::nullopt;
  }
  return key;
}

std::string make_secret() {
  std::array<uint8_t, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail(Status::kUnsupported, "this system has no source of random numbers");
  }
  return to_hex(bytes);
}

// The end of an ipc address: ":uid:gid:pid".
std::optional<std::array<uint32_t, 3>> credentials_of(std::string_view address) {
  std::array<uint32_t, 3> numbers{};
  for (size_t i = numbers.size(); i > 0; --i) {
    const size_t colon = address.rfind(':');
    if (colon == std::string_view::npos || !parse_number(address.substr(colon + 1), numbers[i - 1])) {
      return std::nullopt;
    }
    address = address.substr(0, colon);
  }
  return numbers;
}

}  // namespace

std::optional<ZapRequest> parse_zap_request(std::span<const std::string_view> parts) {
  if (parts.size() < kPartsOfRequest || !parts[0].empty() || parts[1] != kVersion) return std::nullopt;
  const bool has_long_part =
      std::any_of(parts.begin(), parts.end(), [](std::string_view part) { return part.size() > kMostPartBytes; });
  if (has_long_part) return std::nullopt;
  ZapRequest request;
  request.request_id = parts[2];
  request.domain = parts[3];
  request.address = parts[4];
  request.mechanism = parts[6];
  const std::span<const std::string_view> credentials = parts.subspan(kPartsOfRequest);
  if (request.mechanism == "NULL" && credentials.empty()) return request;
  if (request.mechanism != "CURVE" || credentials.size() != 1 || credentials[0].size() != sizeof(CurveKey)) {
    return std::nullopt;
  }
  request.key.emplace();
  std::memcpy(request.key->data(), credentials[0].data(), sizeof(CurveKey));
  return request;
}

std::optional<ZapTicket> parse_ticket(std::string_view text, std::string_view secret) {
  std::array<std::string_view, 3> fields;
  for (std::string_view& field : fields) {
    const size_t slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    field = text.substr(0, slash);
    text.remove_prefix(slash + 1);
  }
  ZapTicket ticket;
  ticket.name = text;
  if (fields[0] != secret || !parse_number(fields[1], ticket.serial)) return std::nullopt;
  if (fields[2].empty()) return ticket;
  ticket.key = key_of_hex(fields[2]);
  return ticket.key ? std::optional(ticket) : std::nullopt;
}

std::string describe_zap_address(const std::string& address, bool is_ipc) {
  const auto numbers = is_ipc ? credentials_of(address) : std::nullopt;
  if (numbers) return fmt::format("process {} of user {}", (*numbers)[2], (*numbers)[0]);
  return is_ipc || address.empty() ? "an address that is not known" : "tcp://" + address;
}

std::optional<uint32_t> user_of_zap_address(const std::string& address) {
  const auto numbers = credentials_of(address);
  if (!numbers) return std::nullopt;
  return (*numbers)[0];
}

std::shared_ptr<ZapHandler> ZapHandler::make(ZmqContext& context) {
  const std::shared_ptr<ZapHandler> handler(new ZapHandler(context));
  context.loop().watch(handler->socket_.fd(), [weak = std::weak_ptr(handler)] {
    const auto alive = weak.lock();
    if (alive && alive->take_turn()) alive->socket_.context().turns()->add(alive);
  });
  context.turns()->add(handler);
  return handler;
}

// The context owns the handler, which does not hold the context in turn.
ZapHandler::ZapHandler(ZmqContext& context)
    : socket_(std::shared_ptr<ZmqContext>(std::shared_ptr<void>(), &context), ZMQ_ROUTER), secret_(make_secret()) {
  socket_.set(ZMQ_LINGER, 0);
  socket_.set(ZMQ_SNDHWM, 0);
  socket_.set(ZMQ_RCVHWM, 0);
  const auto bind = [this] { return libzmq.zmq_bind(socket_.handle(), kEndpoint); };
  if (socket_.context().call([&] { return retry_zmq(bind); }) != 0) {
    fail(Status::kInternal, "the handler of ZAP cannot be bound: {}", libzmq.zmq_strerror(libzmq.zmq_errno()));
  }
}

ZapHandler::~ZapHandler() { socket_.context().loop().unwatch(socket_.fd()); }

std::string ZapHandler::add(Guard guard) {
  assert_on_loop(socket_.context().loop());
  std::string domain = fmt::format("distag-{}", socket_.context().next_number());
  guards_.emplace(domain, std::move(guard));
  return domain;
}

// A callback for a denial may destroy its acceptor, but not this handler: the turn holds it.
bool ZapHandler::take_turn() {
  assert_on_loop(socket_.context().loop());
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    const ZmqSocket::Received received = socket_.receive();
    if (received == ZmqSocket::Received::kNothing) return false;
    if (received == ZmqSocket::Received::kMessage) answer(socket_.parts());
  }
  return true;
}

void ZapHandler::answer(std::span<ZmqPart> parts) {
  if (parts.size() < 2 || socket_.is_too_large()) return;
  std::vector<std::string_view> texts;
  for (ZmqPart& part : parts.subspan(1)) {
    texts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  }
  const std::optional<ZapRequest> request = parse_zap_request(texts);
  const auto found = request ? guards_.find(request->domain) : guards_.end();
  std::string why = "it is asked for by nothing that listens";
  std::string name;
  if (found != guards_.end()) why = why_refused(found->second, *request, name);
  const std::string request_id(texts.size() > 2 ? texts[2].substr(0, kMostPartBytes) : std::string_view());
  const auto frame = [](std::string_view text) { return Frame::copy_of(text.data(), text.size()); };
  const bool is_let_in = why.empty();
  socket_.send(parts[0].bytes(), {Frame(), frame(kVersion), frame(request_id), frame(is_let_in ? "200" : "400"),
                                  frame(is_let_in ? "OK" : "refused"),
                                  is_let_in ? frame(next_ticket(*request, name)) : Frame(), Frame()});
  if (is_let_in || found == guards_.end() || !found->second.on_denied) return;
  found->second.on_denied(fmt::format("a connection from {} was refused: {}",
                                      describe_zap_address(request->address, found->second.is_ipc), why));
}

// Empty: the connection is admitted, and `name` is that of its key.
std::string ZapHandler::why_refused(const Guard& guard, const ZapRequest& request, std::string& name) const {
  if (!guard.keys) {
    if (request.key) return "it has a key, and this worker has none";
    if (!guard.is_ipc || user_of_zap_address(request.address) == geteuid()) return {};
    return "it is of another user, and over ipc:// workers without keys of their own are of one";
  }
  if (!request.key) return "it has no key";
  if (!guard.keys->peers) return *request.key == guard.keys->own.public_key ? "" : "its key is not that of the group";
  const std::optional<std::string> found = guard.keys->peers->name_of(*request.key);
  name = found.value_or("");
  return found ? "" : "its key is not that of a worker that may connect";
}

// Secret, serial number, key in hexadecimal digits or empty, name or empty.
std::string ZapHandler::next_ticket(const ZapRequest& request, const std::string& name) {
  return fmt::format("{}/{}/{}/{}", secret_, ++last_serial_, request.key ? to_hex(*request.key) : "", name);
}

uint64_t ZapHandler::serial_of(ZmqPart& part) const {
  assert_on_loop(socket_.context().loop());
  const char* const text = libzmq.zmq_msg_gets(part.get(), "User-Id");
  if (text == nullptr) return 0;
  const std::string_view ticket(text);
  const size_t begin = secret_.size() + 1;
  const size_t end = ticket.find('/', begin);
  uint64_t serial = 0;
  if (end == std::string_view::npos || !ticket.starts_with(secret_)) return 0;
  return parse_number(ticket.substr(begin, end - begin), serial) ? serial : 0;
}

std::optional<ZapTicket> ZapHandler::ticket_of(ZmqPart& part) const {
  assert_on_loop(socket_.context().loop());
  const char* const text = libzmq.zmq_msg_gets(part.get(), "User-Id");
  return text == nullptr ? std::nullopt : parse_ticket(text, secret_);
}

}  // namespace distag
