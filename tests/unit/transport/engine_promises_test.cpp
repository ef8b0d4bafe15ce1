// The table of SECURITY.md is what the engines say.
#include "transport/socket/engine_promises.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/fd_loop.h"
#include "support/sockets.h"

namespace distag::testing {
namespace {

// Without its two lines of head.
std::vector<std::string> table_of_the_document() {
  std::ifstream file(DISTAG_SECURITY_DOCUMENT);
  std::vector<std::string> lines;
  bool is_table = false;
  for (std::string line; std::getline(file, line) && !(is_table && line.empty());) {
    if (is_table && line.rfind("|---", 0) != 0) lines.push_back(line);
    is_table = is_table || line.rfind("| promise | zmtp | libzmq", 0) == 0;
  }
  return lines;
}

TEST(EnginePromises, AreTheTableOfTheDocument) {
  FdLoop loop("engines", {});
  const ZmtpEngine zmtp(loop);
  const ZmqEngine zmq(loop, nullptr, kSecond);
  std::vector<std::string> table;
  for (const EnginePromise promise : kEnginePromises) {
    table.push_back(fmt::format("| {} | {} | {} |", row_of(promise), zmtp.promise(promise), zmq.promise(promise)));
    EXPECT_FALSE(row_of(promise).empty() || zmtp.promise(promise).empty() || zmq.promise(promise).empty());
  }
  EXPECT_EQ(table_of_the_document(), table);
}

}  // namespace
}  // namespace distag::testing
