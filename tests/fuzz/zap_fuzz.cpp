// Parts of ZAP requests, tickets and monitor events of libzmq: taken whole, or refused. The first byte of a part is its
// size.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz/refusal.h"
#include "transport/zmq/zap.h"
#include "transport/zmq/zmq_monitor.h"

using namespace distag;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string_view> parts;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  for (size_t at = 0; at < all.size();) {
    const size_t length = static_cast<uint8_t>(all[at]);
    parts.push_back(all.substr(at + 1, length));
    at += 1 + length;
  }
  const auto request = parse_zap_request(parts);
  if (request) {
    const bool has_key = request->mechanism == "CURVE";
    fuzz::check(request->key.has_value() == has_key && request->domain == parts.at(3));
    fuzz::check(parts.size() == (has_key ? 8u : 7u));
    describe_zap_address(request->address, true);
    user_of_zap_address(request->address);
  }
  const auto ticket = parse_ticket(all, "secret");
  if (ticket) fuzz::check(all.starts_with("secret/") && all.ends_with(ticket->name));
  const auto event = parse_event({reinterpret_cast<const std::byte*>(data), size});
  fuzz::check(event.has_value() == (size == 6));
  return 0;
}
