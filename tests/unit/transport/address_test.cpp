#include "transport/socket/address.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace distag {
namespace {

std::string numeric(const std::string& endpoint, bool for_listening = false) {
  return parse_address(endpoint, for_listening).endpoint;
}

std::string refusal(const std::string& endpoint, bool for_listening = false) {
  try {
    parse_address(endpoint, for_listening);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    return error.message();
  }
  return "";
}

TEST(Address, TcpBecomesNumeric) {
  EXPECT_EQ(numeric("tcp://127.0.0.1:4711"), "tcp://127.0.0.1:4711");
  EXPECT_EQ(numeric("tcp://[::1]:4711"), "tcp://[::1]:4711");
  EXPECT_EQ(numeric("tcp://localhost:4711"), "tcp://127.0.0.1:4711");
  EXPECT_EQ(numeric("tcp://127.0.0.1:0", true), "tcp://127.0.0.1:0");
  EXPECT_EQ(numeric("ipc:///run/x"), "ipc:///run/x");
}

// A name would make the loop wait for a name server: refused at once, and no server is asked.
TEST(Address, NamesOfHostsAreNone) {
  for (const char* named : {"tcp://ip6-localhost:4711", "tcp://node7.example:4711", "tcp://127.1.2.3.4:1"}) {
    EXPECT_NE(refusal(named).find("only numeric addresses travel"), std::string::npos) << named;
    EXPECT_NE(refusal(named, true).find("only numeric addresses travel"), std::string::npos) << named;
  }
}

TEST(Address, ResolvesTheHostOfATcpAddressAlone) {
  EXPECT_EQ(resolve_address("tcp://localhost:4711"), "tcp://127.0.0.1:4711");
  EXPECT_EQ(resolve_address("tcp://*:0"), "tcp://0.0.0.0:0");
  EXPECT_EQ(resolve_address("tcp://[fe80::1%lo]:4711"), "tcp://[fe80::1%lo]:4711");
  EXPECT_EQ(resolve_address("tcp://[::1]:4711"), "tcp://[::1]:4711");
  for (const char* other : {"", "ipc:///run/x", "inproc://x:1", "file:///x:1"}) {
    EXPECT_EQ(resolve_address(other), other);
  }
  try {
    resolve_address("tcp://no such host:1");
    ADD_FAILURE() << "it resolved";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    EXPECT_NE(error.message().find("host \"no such host\""), std::string::npos) << error.message();
  }
}

TEST(Address, AnInterfaceStandsForItsAddress) {
  EXPECT_EQ(resolve_address("tcp://lo:0"), "tcp://127.0.0.1:0");
  EXPECT_EQ(resolve_address("tcp://lo:4711-4720"), "tcp://127.0.0.1:4711-4720");
}

TEST(Address, ARangeOfPortsIsForListeners) {
  const SocketAddress range = parse_address("tcp://127.0.0.1:4711-4713", true);
  EXPECT_EQ(range.endpoint, "tcp://127.0.0.1:4711-4713");
  SocketAddress one = range;
  EXPECT_TRUE(one.to_next_port());
  EXPECT_EQ(tcp_endpoint(one), "tcp://127.0.0.1:4712");
  EXPECT_TRUE(one.to_next_port());
  EXPECT_FALSE(one.to_next_port());
  EXPECT_EQ(tcp_endpoint(one), "tcp://127.0.0.1:4713");
  SocketAddress last = parse_address("tcp://[::1]:65535-65535", true);
  EXPECT_FALSE(last.to_next_port());
  SocketAddress alone = parse_address("tcp://127.0.0.1:4711", true);
  EXPECT_FALSE(alone.to_next_port());
  EXPECT_EQ(refusal("tcp://127.0.0.1:4711-4713"),
            "port \"4711-4713\" of \"tcp://127.0.0.1:4711-4713\" is not a number from 1 to 65535");
  for (const char* bad : {"tcp://127.0.0.1:2-1", "tcp://127.0.0.1:0-5", "tcp://127.0.0.1:1-", "tcp://127.0.0.1:-5",
                          "tcp://127.0.0.1:1-2-3", "tcp://127.0.0.1:1-65536"}) {
    EXPECT_NE(refusal(bad, true), "") << bad;
  }
}

TEST(Address, RefusalsQuoteTheEndpointAndSayTheForm) {
  EXPECT_EQ(refusal("udp://1.2.3.4:5"),
            "\"udp://1.2.3.4:5\" is no endpoint of this transport: give \"tcp://host:port\" or \"ipc:///path\"");
  EXPECT_EQ(refusal("tcp://127.0.0.1:0"),
            "port 0 of \"tcp://127.0.0.1:0\" cannot be dialled: give the port at which the worker listens");
  for (const char* bad :
       {"", "tcp://", "tcp://:1", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:1x", "tcp://no such host:1", "ipc://", "ipc://relative", "ipc://@abstract", "ipc://*"}) {
    EXPECT_NE(refusal(bad, true), "") << bad;
  }
}

// Each says which part is wrong, and before a name server is asked.
TEST(Address, RefusalsNameThePartThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"tcp://node7:70000", "port \"70000\" of \"tcp://node7:70000\" is not a number from 0 to 65535"},
      {"tcp://node7:http", "port \"http\" of \"tcp://node7:http\" is not a number from 0 to 65535"},
      {"tcp://:29500", "\"tcp://:29500\" has no host: give one, as in tcp://10.0.0.7:29500"},
      {"tcp://", "\"tcp://\" has no host: give one, as in tcp://10.0.0.7:29500"},
      {"tcp://node7", "\"tcp://node7\" has no port: give one, as in tcp://node7:29500"},
      {"tcp://node7:", "\"tcp://node7:\" has no port: give one, as in tcp://node7:29500"}};
  for (const auto& [address, text] : cases) {
    EXPECT_EQ(refusal(address, true), text);
    try {
      resolve_address(address);
      ADD_FAILURE() << address;
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), text);
    }
  }
}

TEST(Address, PathThatIsTooLongIsRefusedWithTheLimit) {
  EXPECT_EQ(numeric("ipc:///" + std::string(106, 'x')).size(), 113u);
  EXPECT_NE(refusal("ipc:///" + std::string(107, 'x')).find("has 108 bytes, and the system takes at most 107"),
            std::string::npos);
}

TEST(Address, TellsWhatOtherMachinesReach) {
  for (const char* local : {"tcp://127.0.0.1:1", "tcp://127.200.3.4:1", "tcp://[::1]:1", "ipc:///x"}) {
    EXPECT_TRUE(parse_address(local, true).is_local()) << local;
  }
  for (const char* reachable : {"tcp://0.0.0.0:1", "tcp://*:1", "tcp://[::]:1", "tcp://10.0.0.1:1", "tcp://128.0.0.1:1",
                                "tcp://[::ffff:127.0.0.1]:1"}) {
    EXPECT_FALSE(parse_address(reachable, true).is_local()) << reachable;
  }
}

TEST(Address, OwnAddressIsNeededForOtherMachinesOnly) {
  for (const char* local : {"tcp://127.0.0.1:1", "tcp://[::1]:1", "ipc:///x", "file:///x", "inproc://x"}) {
    EXPECT_EQ(own_address_towards(local), "") << local;
  }
}

TEST(Address, ListenerAtAllAddressesIsDialledAtItsOwn) {
  EXPECT_EQ(dialable("tcp://0.0.0.0:4711", "tcp://10.0.0.2:0"), "tcp://10.0.0.2:4711");
  EXPECT_EQ(dialable("tcp://[::]:4711", "tcp://[fd77::2]:0"), "tcp://[fd77::2]:4711");
  EXPECT_EQ(dialable("tcp://0.0.0.0:4711", ""), "tcp://0.0.0.0:4711");
  EXPECT_EQ(dialable("tcp://10.0.0.3:4711", "tcp://10.0.0.2:0"), "tcp://10.0.0.3:4711");
  EXPECT_EQ(dialable("ipc:///x", "tcp://10.0.0.2:0"), "ipc:///x");
}

}  // namespace
}  // namespace distag
