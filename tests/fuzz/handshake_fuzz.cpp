// The words of a stranger before a worker accepts it. Input: a kind, then what it is about: the handshake of a client
// of CURVE that keeps to it except in some bytes, or does not have the key; raw bytes behind a greeting; keys and lists
// of keys as text, and as the files that the environment names. The worker accepts no client without the key, and none
// under a name other than the key's; what is taken as a key reads the same when it is written.
#include <fcntl.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>

#include "base/error.h"
#include "fuzz/input.h"
#include "fuzz/refusal.h"
#include "transport/key_ring.h"
#include "transport/socket/group_key.h"
#include "transport/socket/worker_key.h"
#include "transport/zmtp/zmtp_reader.h"
#include "worker/keys.h"

namespace {

using namespace distag;
using fuzz::check;
using fuzz::Input;
using fuzz::is_taken;
using Bytes = std::vector<uint8_t>;

// The same numbers in each run.
uint32_t next_random = 0;
const char* random_name() { return "counter"; }
uint32_t random_number() { return next_random += 0x9e3779b9; }
void fill(void* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<uint8_t*>(bytes)[i] = static_cast<uint8_t>(random_number() >> 24);
}
randombytes_implementation counter = {random_name, random_number, nullptr, nullptr, fill, nullptr};

void begin() {
  static const bool is_set = randombytes_set_implementation(&counter) == 0 && sodium_init() >= 0;
  check(is_set);
  next_random = 0;
}

void append(Bytes& to, const void* from, size_t size) {
  const auto* const first = static_cast<const uint8_t*>(from);
  to.insert(to.end(), first, first + size);
}
void append(Bytes& to, std::string_view text) { append(to, text.data(), text.size()); }

Bytes nonce_of(std::string_view prefix, const Bytes& rest) {
  Bytes nonce;
  append(nonce, prefix);
  append(nonce, rest.data(), rest.size());
  check(nonce.size() == crypto_box_NONCEBYTES);
  return nonce;
}
Bytes box(const Bytes& plain, const Bytes& nonce, const CurveKey& to, const CurveKey& from) {
  Bytes boxed(plain.size() + crypto_box_MACBYTES);
  check(crypto_box_easy(boxed.data(), plain.data(), plain.size(), nonce.data(), to.data(), from.data()) == 0);
  return boxed;
}
Bytes short_nonce(uint8_t number) { return {0, 0, 0, 0, 0, 0, 0, number}; }

// The side that dials, as rfc.zeromq.org/spec/26 has it.
class Client {
 public:
  Client(const CurveKeyPair& own, const CurveKey& server) : own_(own), server_(server), short_(new_key_pair()) {}

  Bytes hello() const {
    Bytes command;
    append(command, {"\x05HELLO\x01\0", 8});
    command.resize(8 + 72);
    append(command, short_.public_key.data(), short_.public_key.size());
    append(command, short_nonce(1).data(), 8);
    const Bytes boxed = box(Bytes(64), nonce_of("CurveZMQHELLO---", short_nonce(1)), server_, short_.secret_key);
    append(command, boxed.data(), boxed.size());
    return command;
  }
  // Reads WELCOME; the vouch is of whose key it is, for that connection.
  Bytes initiate(std::span<const std::byte> welcome, const CurveKeyPair& voucher, std::string_view properties) {
    constexpr size_t kBoxAt = 8 + 16;
    check(welcome.size() == kBoxAt + crypto_box_MACBYTES + 32 + 96);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(welcome.data());
    Bytes plain(32 + 96);
    check(crypto_box_open_easy(plain.data(), bytes + kBoxAt, welcome.size() - kBoxAt,
                               nonce_of("WELCOME-", {bytes + 8, bytes + kBoxAt}).data(), server_.data(),
                               short_.secret_key.data()) == 0);
    std::memcpy(server_short_.data(), plain.data(), server_short_.size());
    Bytes vouched;
    append(vouched, short_.public_key.data(), 32);
    append(vouched, server_.data(), 32);
    const Bytes long_nonce(16, 7);
    const Bytes vouch = box(vouched, nonce_of("VOUCH---", long_nonce), server_short_, voucher.secret_key);
    Bytes inner;
    append(inner, own_.public_key.data(), 32);
    append(inner, long_nonce.data(), long_nonce.size());
    append(inner, vouch.data(), vouch.size());
    append(inner, properties);
    Bytes command;
    append(command, "\x08INITIATE");
    append(command, plain.data() + 32, 96);
    append(command, short_nonce(2).data(), 8);
    const Bytes boxed = box(inner, nonce_of("CurveZMQINITIATE", short_nonce(2)), server_short_, short_.secret_key);
    append(command, boxed.data(), boxed.size());
    return command;
  }
  Bytes message(std::string_view text) const {
    Bytes plain(1);
    append(plain, text);
    Bytes command;
    append(command, "\x07MESSAGE");
    append(command, short_nonce(3).data(), 8);
    const Bytes boxed = box(plain, nonce_of("CurveZMQMESSAGEC", short_nonce(3)), server_short_, short_.secret_key);
    append(command, boxed.data(), boxed.size());
    return command;
  }

 private:
  const CurveKeyPair own_;
  const CurveKey server_;
  const CurveKeyPair short_;
  CurveKey server_short_{};
};

// ---- the stream ----

Bytes greeting(const char* mechanism) {
  Bytes bytes(64);
  bytes[0] = 0xff;
  bytes[9] = 0x7f;
  bytes[10] = 3;
  std::memcpy(bytes.data() + 12, mechanism, std::strlen(mechanism));
  return bytes;
}
Bytes frame(const Bytes& body, uint8_t flags) {
  Bytes bytes = {static_cast<uint8_t>(flags | 2),  0, 0, 0, 0, 0, 0, static_cast<uint8_t>(body.size() >> 8),
                 static_cast<uint8_t>(body.size())};
  append(bytes, body.data(), body.size());
  return bytes;
}

// Feeds the reader; nullopt: it wants no more of this stream.
std::optional<std::vector<Frames>> feed(ZmtpReader& reader, const Bytes& bytes) {
  std::vector<Frames> messages;
  try {
    for (size_t at = 0; at < bytes.size();) {
      const std::span<std::byte> room = reader.room();
      check(!room.empty());
      const size_t size = std::min(room.size(), bytes.size() - at);
      std::memcpy(room.data(), bytes.data() + at, size);
      reader.add(size);
      at += size;
      while (auto frames = reader.next()) messages.push_back(std::move(*frames));
    }
  } catch (const Error& error) {
    check(error.status() == Status::kProtocol || error.status() == Status::kDenied);
    check(messages.empty() || reader.is_ready());
    return std::nullopt;
  }
  check(messages.empty() || reader.is_ready());
  return messages;
}

// Changes bytes, from `first` on, where each one counts. False: nothing was changed.
bool spoil(Input& input, Bytes& bytes, size_t first) {
  const Bytes before = bytes;
  for (size_t left = input.below(3); left > 0; --left) {
    const size_t place = first + (input.byte() * 256u + input.byte()) % (bytes.size() - first);
    bytes[place] = input.byte();
  }
  if (input.below(16) == 15) bytes.resize(bytes.size() - 1 - input.byte() % 8);
  return bytes != before;
}

// From `kHonest` on, the properties are those of a DEALER.
constexpr size_t kHonest = 2;
std::string properties_of(size_t kind, Input& input) {
  const std::string dealer(
      "\x0bSocket-Type\0\0\0\x06"
      "DEALER",
      12 + 4 + 6);
  switch (kind) {
    case 0:
      return input.line();
    case 1:
      return dealer + input.line();
    case kHonest:
      return std::string("\x08Identity\0\0\0\0", 13) + dealer;
    default:
      return dealer;
  }
}

void check_handshake(Input& input) {
  const CurveKeyPair server = new_key_pair();
  const std::map<std::string, CurveKeyPair> workers = {
      {"a", new_key_pair()}, {"b", new_key_pair()}, {"stranger", new_key_pair()}};
  const auto ring =
      std::make_shared<KeyRing>(KeyRing::Keys{{"a", workers.at("a").public_key}, {"b", workers.at("b").public_key}});
  const bool has_ring = input.flag();
  const SocketKeys keys = has_ring ? SocketKeys(server, server.public_key, ring) : SocketKeys(server);
  const char* const names[] = {"a", "b", "stranger"};
  const std::string name = names[input.below(3)];
  const std::string voucher = input.below(4) == 0 ? names[input.below(3)] : name;
  const CurveKeyPair own = has_ring || name != "a" ? workers.at(name) : server;
  const bool is_let_in = has_ring ? name != "stranger" && voucher == name : name == "a" && voucher == "a";
  const CurveKey expected = input.below(8) == 0 ? workers.at("a").public_key : server.public_key;

  ZmtpReader reader(ZmtpReader::Role::kAccepts, &keys);
  reader.take_answer();
  check(feed(reader, greeting("CURVE")).has_value());
  Client client(own, expected);
  Bytes hello = client.hello();
  bool is_spoiled = spoil(input, hello, 80) || expected != server.public_key;
  const bool goes_on = feed(reader, frame(hello, 4)).has_value();
  check((goes_on || is_spoiled) && !reader.is_ready());  // a bit of the key counts with INITIATE only
  if (!goes_on) return check(reader.take_answer().empty());
  const std::vector<std::byte> welcome = reader.take_answer();
  const CurveKeyPair& vouching = voucher == name ? own : workers.at(voucher);
  const size_t kind = input.below(4);
  const std::string properties = properties_of(kind, input);
  Bytes initiate = client.initiate(std::span(welcome).subspan(2), vouching, properties);
  is_spoiled = spoil(input, initiate, 0) || is_spoiled;
  const bool is_in = feed(reader, frame(initiate, 4)).has_value() && reader.is_ready();
  if (is_spoiled || !is_let_in) check(!is_in);
  if (!is_in) return check(is_spoiled || !is_let_in || kind < kHonest);
  check(properties.find("DEALER") != std::string::npos && reader.client_name() == (has_ring ? name : ""));
  if (has_ring && input.flag()) {
    ring->replace({{name == "a" ? "b" : "a", own.public_key}});
    check(!reader.is_still_let_in());
    return;
  }
  check(reader.is_still_let_in());
  Bytes message = client.message("hi");
  const bool is_changed = spoil(input, message, 0);
  const auto messages = feed(reader, frame(message, 0));
  check(messages.has_value() != is_changed);
  if (is_changed) return;
  check(messages->size() == 1 && messages->front().size() == 1 && messages->front()[0].size() == 2);
  check(std::memcmp(messages->front()[0].data(), "hi", 2) == 0);
}

void check_raw(Input& input) {
  const SocketKeys keys{new_key_pair()};
  ZmtpReader reader(ZmtpReader::Role::kAccepts, &keys);
  Bytes bytes = greeting("CURVE");
  const bool is_greeted = input.flag();
  if (!is_greeted) spoil(input, bytes, 0);
  append(bytes, input.rest());
  const auto messages = feed(reader, bytes);
  check(!reader.is_ready() && (!messages || messages->empty()));
}

// ---- keys as text ----

std::string write_list(const KeyRing::Keys& keys) {
  std::string text;
  for (const auto& [name, key] : keys) text += name + " " + print_key(key) + "\n";
  return text;
}

void check_key_text(const std::string& text) {
  CurveKey key{};
  if (is_taken([&] { key = parse_key(text, "it"); })) check(print_key(key) == text);
  KeyRing::Keys keys;
  if (is_taken([&] { keys = parse_key_list(text); })) {
    check(parse_key_list(write_list(keys)) == keys);
    for (const auto& [name, its] : keys) check(!name.empty() && name.front() != '#' && name.find('\n') == name.npos);
    is_taken([&] {
      const KeyRing ring(keys);
      for (const auto& [name, its] : keys) check(ring.key_of(name) == its && ring.name_of(its) == name);
    });
  }
  CurveKeyPair group;
  check(is_taken([&] { group = group_key_of(text); }) == (text.size() >= 32));
}

// A file without a name, which lives as long as this.
class File {
 public:
  File(const std::string& text, bool is_private) : descriptor_(memfd_create("keys", MFD_CLOEXEC)) {
    check(descriptor_ >= 0 && fchmod(descriptor_, is_private ? 0600 : 0644) == 0);
    check(write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  ~File() { close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  const int descriptor_;
};

void check_key_files(Input& input) {
  const uint8_t kinds = input.byte();
  const File secret(kinds % 2 == 0 ? input.line() : print_key(new_key_pair().secret_key) + "\n", kinds < 224);
  const File peers(kinds % 4 < 2 ? write_list({{"a", new_key_pair().public_key}}) + input.line() : input.rest(),
                   kinds < 240);
  const File group(input.rest(), true);
  std::map<std::string, std::string> environment;
  if ((kinds & 8) == 0) environment["DISTAG_SECRET_KEY_FILE"] = secret.path();
  if ((kinds & 16) == 0) environment["DISTAG_PEER_KEYS_FILE"] = peers.path();
  if ((kinds & 32) != 0) environment["DISTAG_GROUP_KEY_FILE"] = group.path();
  const auto get = [&environment](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
  SecurityOptions options;
  options.allow_insecure = true;
  Security security;
  if (!is_taken([&] { security = load_security(options, get); }, Status::kDenied)) return;
  const bool is_for_worker = (kinds & 24) == 0;
  check(security.worker_keys.has_value() == is_for_worker);
  check(security.group_key.has_value() == (!is_for_worker && environment.contains("DISTAG_GROUP_KEY_FILE")));
  if (is_for_worker)
    check(kinds < 224 &&
          pair_of(security.worker_keys->own.secret_key).public_key == security.worker_keys->own.public_key);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  begin();
  Input input(data, size);
  switch (input.below(5)) {
    case 0:
    case 1:
      check_handshake(input);
      break;
    case 2:
      check_raw(input);
      break;
    case 3:
      check_key_text(input.rest());
      break;
    default:
      check_key_files(input);
  }
  return 0;
}
