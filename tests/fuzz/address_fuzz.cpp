// Reads an address of a worker and the place where a group meets; nothing is dialled or looked up. Input: a line with
// the address or uri, then lines with the values that the environment has.
#include <array>
#include <cstring>
#include <map>

#include "base/error.h"
#include "fuzz/input.h"
#include "fuzz/refusal.h"
#include "group/rendezvous.h"
#include "transport/shm/lane_socket.h"
#include "transport/socket/address.h"

namespace {

using namespace distag;
using fuzz::check;
using fuzz::is_taken;

constexpr int kMostPorts = 1 << 16;

void check_address(const std::string& text, bool for_listening) {
  SocketAddress address;
  if (!is_taken([&] { address = parse_address(text, for_listening); })) return;
  check(address.length > 0 && address.length <= sizeof address.address);
  const SocketAddress again = parse_address(address.endpoint, for_listening);
  check(again.endpoint == address.endpoint && again.family() == address.family());
  check(again.last_port == address.last_port && again.is_local() == address.is_local());
  if (address.is_ipc()) {
    check(std::strlen(address.path()) + 1 <= sizeof(sockaddr_un::sun_path));
    if (const auto lane = lane_address(text)) check(lane->is_ipc() && parse_address(lane->endpoint, false).is_ipc());
    return;
  }
  check(resolve_address(address.endpoint) == address.endpoint);  // a number, for which no name server is asked
  parse_address(dialable(address.endpoint, "tcp://10.0.0.1:0"), for_listening);
  int ports = 1;
  while (address.to_next_port()) check(++ports <= kMostPorts);
}

void check_rendezvous(const std::string& uri, fuzz::Input& input) {
  std::map<std::string, std::string> environment;
  const auto rank = static_cast<int32_t>(input.integer());
  const auto world_size = static_cast<int32_t>(input.integer());
  for (const char* name :
       {"WORLD_SIZE", "RANK", "DISTAG_RENDEZVOUS", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID", "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "JOB_COMPLETION_INDEX", "PMIX_RANK"}) {
    environment[name] = input.line();
  }
  is_taken([&] {
    const RendezvousTarget target = resolve_rendezvous(uri, rank, world_size, [&](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
    check(target.uri != "env://" && target.uri != "slurm://" && target.world_size != 0);
    if (target.world_size > 0) check(target.rank >= 0 && target.rank < target.world_size);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const std::string text = input.line();
  check_address(text, true);
  check_address(text, false);
  check_rendezvous(text, input);
  return 0;
}
