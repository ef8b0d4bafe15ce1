// Groups over a real etcd: members that die, servers that die, users and certificates.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/base64.h"
#include "etcd/etcd_cluster.h"

namespace distag::testing {
namespace {

using Json = nlohmann::json;

constexpr int64_t kAmple = 120 * DISTAG_SECOND;  // of what is refused at once

class EtcdGroupTest : public ::testing::Test {
 protected:
  ~EtcdGroupTest() override {
    if (self_) self_->shutdown(0, nullptr, nullptr);
  }

  static ParticipantOptions options(const std::string& uri, int rank, int world_size) {
    ParticipantOptions made;
    made.rendezvous = uri;
    made.rank = rank;
    made.world_size = world_size;
    return made;
  }
  void spawn(const ParticipantOptions& given) { others_.push_back(std::make_unique<Process>(given)); }
  void start_self(const ParticipantOptions& given) {
    self_ = std::make_unique<Participant>(given);
    ASSERT_EQ(self_->start(240 * DISTAG_SECOND, &err_), DISTAG_OK) << text_of(err_);
  }
  // How many members answered when that one asked all.
  int64_t call_all(const std::string& worker) {
    return call_for_numbers(self_->worker(), worker.c_str(), "call_all").at(0);
  }
  void expect_clean_end() {
    Value report;
    EXPECT_EQ(self_->shutdown(240 * DISTAG_SECOND, report.out(), &err_), DISTAG_OK) << text_of(err_);
    self_.reset();
    for (auto& other : others_) EXPECT_EQ(other->wait(240000), 0);
  }
  // The status and text of a start that fails.
  static distag_error failure(const ParticipantOptions& given, int64_t timeout = 4 * DISTAG_SECOND) {
    Participant one(given);
    distag_error err = DISTAG_ERROR_INIT;
    EXPECT_NE(one.start(timeout, &err), DISTAG_OK);
    one.shutdown(0, nullptr, nullptr);
    return err;
  }
  static bool has(const distag_error& err, const std::string& part) {
    return std::string(err.message).find(part) != std::string::npos;
  }

  std::vector<std::unique_ptr<Process>> others_;
  std::unique_ptr<Participant> self_;
  distag_error err_ = DISTAG_ERROR_INIT;
};

TEST_F(EtcdGroupTest, AStaticWorldMeetsCallsAndLeavesNothing) {
  EtcdCluster etcd;
  const std::string uri = etcd.uri("/jobs/one");
  for (int rank : {1, 2}) spawn(options(uri, rank, 3));
  ASSERT_NO_FATAL_FAILURE(start_self(options(uri, 0, 3)));
  for (const char* worker : {"A", "B", "C"}) EXPECT_EQ(call_all(worker), 3);
  EXPECT_EQ(etcd.count_keys(), 4u);
  expect_clean_end();
  EXPECT_EQ(etcd.count_keys(), 0u);
}

TEST_F(EtcdGroupTest, RankZeroDiesAndComesBackAndSoDoesAnother) {
  EtcdCluster etcd;
  const std::string uri = etcd.uri("/jobs/one");
  for (int rank : {0, 1}) spawn(options(uri, rank, 3));
  ASSERT_NO_FATAL_FAILURE(start_self(options(uri, 2, 3)));
  std::vector<int> starts = {1, 1};
  for (const size_t rank : {0u, 1u, 0u}) {
    others_[rank]->kill();
    others_[rank]->wait(-1);
    others_[rank] = std::make_unique<Process>(options(uri, static_cast<int>(rank), 3));
    ASSERT_TRUE(self_->wait_until_seen(Participant::name_of(static_cast<int>(rank)), ++starts[rank]));
    EXPECT_EQ(call_all("C"), 3);
  }
  expect_clean_end();
  EXPECT_EQ(etcd.count_keys(), 0u);
}

// A server, then the leader, then most of them: members go on, and others come as long as most servers live.
TEST_F(EtcdGroupTest, ServersDieAndTheGroupGoesOn) {
  EtcdCluster etcd(3);
  const std::string uri = etcd.uri("/jobs/one");
  ASSERT_NO_FATAL_FAILURE(start_self(options(uri, 0, -1)));
  const int leader = etcd.leader();
  const int other = (leader + 1) % 3;
  etcd.kill(other);
  spawn(options(uri, 1, -1));
  ASSERT_TRUE(self_->wait_until_started(1));
  EXPECT_EQ(call_all("A"), 2);
  etcd.start(other);
  etcd.wait_until_serving();

  etcd.kill(leader);
  spawn(options(uri, 2, -1));
  ASSERT_TRUE(self_->wait_until_started(2));
  EXPECT_EQ(call_all("A"), 3);

  etcd.kill(other);
  const distag_error err = failure(options(uri, 3, -1));
  EXPECT_EQ(err.code, DISTAG_E_DEADLINE) << err.message;
  EXPECT_TRUE(has(err, "time was up before etcd had answered")) << err.message;
  EXPECT_TRUE(has(err, "http://127.0.0.1:")) << err.message;
  for (int round = 0; round < 20; ++round) EXPECT_EQ(call_all("A"), 3);

  etcd.start(leader);
  etcd.start(other);
  etcd.wait_until_serving();
  spawn(options(uri, 3, -1));
  ASSERT_TRUE(self_->wait_until_started(3));
  EXPECT_EQ(call_all("B"), 4);
  for (const char* worker : {"B", "C", "D"}) call_for_numbers(self_->worker(), worker, "leave");
  expect_clean_end();
}

TEST_F(EtcdGroupTest, WithoutAServerTimeIsUp) {
  std::string uri;
  {
    EtcdCluster etcd;
    uri = etcd.uri("/jobs/one");
  }
  const distag_error err = failure(options(uri, 0, 2), DISTAG_SECOND);
  EXPECT_EQ(err.code, DISTAG_E_DEADLINE);
  EXPECT_TRUE(has(err, "Failed to connect to 127.0.0.1")) << err.message;
}

// The last words to it get half a second of their own: the threads of the worker end well in what is theirs.
TEST_F(EtcdGroupTest, AServerThatIsMuteMakesNoShutdownFail) {
  EtcdCluster etcd;
  ASSERT_NO_FATAL_FAILURE(start_self(options(etcd.uri("/jobs/one"), 0, -1)));
  etcd.pause(0);
  Value report;
  EXPECT_EQ(self_->shutdown(0, report.out(), &err_), DISTAG_OK) << text_of(err_);
  self_.reset();
}

// Empty: the member has no lease.
std::string lease_of_member(EtcdCluster& etcd) {
  const Json answer = etcd.ask(
      "/v3/kv/range", {{"key", to_base64("/jobs/one/member/")}, {"range_end", to_base64("/jobs/one/member0")}});
  return answer.contains("kvs") ? answer["kvs"][0].value("lease", "") : "";
}

// As of members that were stopped for long. The watch begins at a revision that is forgotten meanwhile.
TEST_F(EtcdGroupTest, LeasesThatRanOutAreTakenAnewAlsoAfterACompaction) {
  EtcdCluster etcd;
  const std::string uri = etcd.uri("/jobs/one");
  ASSERT_NO_FATAL_FAILURE(start_self(options(uri, 0, -1)));
  for (int round = 0; round < 3; ++round) {
    const std::string lease = lease_of_member(etcd);
    ASSERT_NE(lease, "");
    const Json answer = etcd.ask("/v3/lease/revoke", {{"ID", lease}});
    etcd.ask("/v3/kv/compaction", {{"revision", answer["header"]["revision"]}});
    std::string next;
    while (next.empty() || next == lease) next = lease_of_member(etcd);  // the test's deadline ends it
  }
  spawn(options(uri, 1, -1));
  ASSERT_TRUE(self_->wait_until_started(1));
  call_for_numbers(self_->worker(), "B", "leave");
  expect_clean_end();
  EXPECT_EQ(etcd.count_keys(), 0u);
}

// ---- users and certificates ----

// A variable of the environment, as long as it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

void write_file(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  std::fputs(text.c_str(), file);
  std::fclose(file);
  ASSERT_EQ(std::system(("chmod 600 " + path).c_str()), 0);
}

// A user may read and write what is below /jobs/.
void enable_users(EtcdCluster& etcd) {
  for (const char* name : {"root", "distag"}) {
    etcd.ask("/v3/auth/user/add", {{"name", name}, {"password", std::string(name) + " password"}});
    etcd.ask("/v3/auth/role/add", {{"name", name}});
    etcd.ask("/v3/auth/user/grant", {{"user", name}, {"role", name}});
  }
  const Json permission = {{"permType", "READWRITE"}, {"key", to_base64("/jobs/")}, {"range_end", to_base64("/jobs0")}};
  etcd.ask("/v3/auth/role/grant", {{"name", "distag"}, {"perm", permission}});
  const Json answer = etcd.ask("/v3/auth/enable", Json::object());
  ASSERT_TRUE(answer.is_object() && answer.contains("header")) << answer;
}

TEST_F(EtcdGroupTest, AUserComesInByItsPasswordAndNobodyElse) {
  EtcdCluster etcd;
  ASSERT_NO_FATAL_FAILURE(enable_users(etcd));
  const TemporaryDirectory folder;
  const std::string uri = etcd.uri("/jobs/one");
  EXPECT_EQ(failure(options(uri, 0, 2), kAmple).code, DISTAG_E_DENIED);
  const std::string file = folder.path() + "/password";
  const Variable user("DISTAG_ETCD_USER", "distag");
  const Variable password("DISTAG_ETCD_PASSWORD_FILE", file);
  ASSERT_NO_FATAL_FAILURE(write_file(file, "wrong password\n"));
  distag_error err = failure(options(uri, 0, 2), kAmple);
  EXPECT_EQ(err.code, DISTAG_E_DENIED) << err.message;
  EXPECT_FALSE(has(err, "wrong password")) << err.message;
  ASSERT_NO_FATAL_FAILURE(write_file(file, "distag password\n"));
  err = failure(options(etcd.uri("/elsewhere"), 0, 2), kAmple);
  EXPECT_EQ(err.code, DISTAG_E_DENIED) << err.message;
  EXPECT_TRUE(has(err, "permission denied")) << err.message;
  spawn(options(uri, 1, 2));
  ASSERT_NO_FATAL_FAILURE(start_self(options(uri, 0, 2)));
  EXPECT_EQ(call_all("B"), 2);
  expect_clean_end();
}

// Files in PEM: authorities ca and other, certificates of 127.0.0.1 by each.
void make_certificates(const std::string& folder) {
  const std::string make =
      "cd " + folder +
      " && for ca in ca other; do openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
      " -keyout $ca.key -out $ca.pem -subj /CN=$ca"
      " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $ca-own.key -out $ca-own.csr"
      " -subj /CN=127.0.0.1 && printf 'subjectAltName=IP:127.0.0.1\\n' > $ca.ext"
      " && openssl x509 -req -in $ca-own.csr -CA $ca.pem -CAkey $ca.key -CAcreateserial -days 2 -extfile $ca.ext"
      " -out $ca-own.pem || exit 1; done";
  ASSERT_EQ(std::system(("{ " + make + "; } > " + folder + "/openssl.log 2>&1").c_str()), 0);
}

TEST_F(EtcdGroupTest, WithTlsEachSideKnowsTheOther) {
  const TemporaryDirectory folder;
  const std::string& path = folder.path();
  ASSERT_NO_FATAL_FAILURE(make_certificates(path));
  EtcdCluster etcd(1, {path + "/ca.pem", path + "/ca-own.pem", path + "/ca-own.key"});
  const std::string uri = etcd.uri("/jobs/one");
  {
    const Variable authorities("DISTAG_ETCD_CACERT", path + "/ca.pem");
    const Variable certificate("DISTAG_ETCD_CERT", path + "/ca-own.pem");
    const Variable key("DISTAG_ETCD_KEY", path + "/ca-own.key");
    spawn(options(uri, 1, 2));
    ASSERT_NO_FATAL_FAILURE(start_self(options(uri, 0, 2)));
    EXPECT_EQ(call_all("B"), 2);
    expect_clean_end();
  }
  {
    const Variable authorities("DISTAG_ETCD_CACERT", path + "/other.pem");
    const distag_error err = failure(options(uri, 0, 2), kAmple);
    EXPECT_EQ(err.code, DISTAG_E_DENIED) << err.message;
    EXPECT_TRUE(has(err, "certificate")) << err.message;
  }
  {
    const Variable authorities("DISTAG_ETCD_CACERT", path + "/ca.pem");
    const Variable certificate("DISTAG_ETCD_CERT", path + "/other-own.pem");
    const Variable key("DISTAG_ETCD_KEY", path + "/other-own.key");
    const distag_error err = failure(options(uri, 0, 2));
    EXPECT_NE(err.code, DISTAG_OK) << err.message;
    EXPECT_TRUE(has(err, "DISTAG_ETCD_CERT")) << err.message;
  }
  const distag_error err = failure(options(uri, 0, 2));
  EXPECT_NE(err.code, DISTAG_OK);
  EXPECT_TRUE(has(err, "DISTAG_ETCD_CACERT")) << err.message;
}

}  // namespace
}  // namespace distag::testing
