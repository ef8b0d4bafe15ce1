#include "group/etcd_settings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "base/regular_file.h"

namespace distag {
namespace {

using Environment = std::map<std::string, std::string>;

EtcdSettings read(const std::string& uri, const Environment& environment = {}) {
  return read_etcd_settings(uri, [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string failure(const std::string& uri, const Environment& environment = {}) {
  try {
    read(uri, environment);
  } catch (const Error& error) {
    return fmt::format("{}: {}", status_name(error.status()), error.message());
  }
  return "none";
}

class EtcdPasswordTest : public ::testing::Test {
 protected:
  EtcdPasswordTest() : path_(::testing::TempDir() + fmt::format("distag_password_{:x}", SystemRandom().next())) {
    EXPECT_TRUE(create_private_file(path_, "of the user\n"));
  }
  ~EtcdPasswordTest() override { std::remove(path_.c_str()); }
  Environment environment() const { return {{"DISTAG_ETCD_USER", "me"}, {"DISTAG_ETCD_PASSWORD_FILE", path_}}; }

  const std::string path_;
};

TEST(EtcdSettings, ReadsServersAndPrefix) {
  const EtcdSettings settings = read("etcd://a.example:2379,10.0.0.2:1,[fe80::1]:65535/jobs/train//");
  EXPECT_EQ(settings.endpoints,
            (std::vector<std::string>{"http://a.example:2379", "http://10.0.0.2:1", "http://[fe80::1]:65535"}));
  EXPECT_EQ(settings.prefix, "/jobs/train");
}

TEST(EtcdSettings, TheFirstWayToAServerIsTaken) {
  const auto find_way = [](const std::string& server) -> std::string {
    if (server == "tcp://unknown:1") fail(Status::kInvalidArgument, "unknown");
    return server == "tcp://near:2" ? "" : "tcp://10.0.0.2:0 to " + server;
  };
  EXPECT_EQ(find_way_to_etcd("etcd://unknown:1,near:2,far:3,farther:4/x", find_way), "tcp://10.0.0.2:0 to tcp://far:3");
  EXPECT_EQ(find_way_to_etcd("etcd://unknown:1,near:2/x", find_way), "");
  EXPECT_EQ(find_way_to_etcd("etcd://me:secret@far:3/x", find_way), "");
}

TEST(EtcdSettings, RefusesWhatIsNoAddress) {
  for (const char* uri :
       {"etcd://", "etcd:///x", "etcd://a/x", "etcd://a:0/x", "etcd://a:65536/x", "etcd://a:1x/x", "etcd://:1/x",
        "etcd://a:1", "etcd://a:1/", "etcd://a:1//", "etcd://a:1,/x,b", "etcd://a:1,,b:1/x", "etcd://a:1/x?y",
        "etcd://a:1/x y", "etcd://a:1/x%20y", "etcd://a b:1/x", "etcd://::1:1/x", "etcd://a:1/\xc3\xa4"}) {
    EXPECT_TRUE(failure(uri).starts_with("INVALID_ARGUMENT: rendezvous \"etcd://")) << uri << ": " << failure(uri);
  }
  EXPECT_NE(failure("etcd://a:1/" + std::string(256, 'x')), "none");
  EXPECT_EQ(failure("etcd://a:1/" + std::string(254, 'x')), "none");
}

TEST(EtcdSettings, NeverRepeatsAPasswordOfAnAddress) {
  const std::string text = failure("etcd://me:secret@a:1/x");
  EXPECT_EQ(text.find("secret"), std::string::npos) << text;
  EXPECT_TRUE(text.starts_with("INVALID_ARGUMENT: rendezvous \"etcd://...\": an address holds no user")) << text;
  EXPECT_NE(text.find("DISTAG_ETCD_USER and DISTAG_ETCD_PASSWORD_FILE"), std::string::npos) << text;
}

TEST(EtcdSettings, SpeaksTlsWhereCertificatesAreNamed) {
  const EtcdSettings settings =
      read("etcd://a:1/x", {{"DISTAG_ETCD_CACERT", "ca"}, {"DISTAG_ETCD_CERT", "c"}, {"DISTAG_ETCD_KEY", "k"}});
  EXPECT_EQ(settings.endpoints, std::vector<std::string>{"https://a:1"});
  EXPECT_EQ(settings.tls.authorities, "ca");
  EXPECT_EQ(settings.tls.certificate, "c");
  EXPECT_EQ(settings.tls.key, "k");
  EXPECT_TRUE(failure("etcd://a:1/x", {{"DISTAG_ETCD_CACERT", "ca"}, {"DISTAG_ETCD_KEY", "k"}})
                  .starts_with("INVALID_ARGUMENT: DISTAG_ETCD_CERT and DISTAG_ETCD_KEY"));
  EXPECT_TRUE(failure("etcd://a:1/x", {{"DISTAG_ETCD_CERT", "c"}, {"DISTAG_ETCD_KEY", "k"}})
                  .starts_with("INVALID_ARGUMENT: DISTAG_ETCD_CERT needs DISTAG_ETCD_CACERT"));
}

TEST_F(EtcdPasswordTest, IsReadFromAFileOfTheUserAlone) {
  const EtcdSettings settings = read("etcd://127.0.0.1:1,localhost:2,[::1]:3/x", environment());
  EXPECT_EQ(settings.user, "me");
  EXPECT_EQ(settings.password, "of the user");
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_TRUE(failure("etcd://127.0.0.1:1/x", environment()).starts_with("DENIED: DISTAG_ETCD_PASSWORD_FILE: "));
  EXPECT_TRUE(failure("etcd://127.0.0.1:1/x", {{"DISTAG_ETCD_USER", "me"}}).starts_with("INVALID_ARGUMENT: "));
}

TEST_F(EtcdPasswordTest, DoesNotGoOverTheNetworkInTheClear) {
  Environment variables = environment();
  for (const char* uri : {"etcd://10.0.0.1:1/x", "etcd://127.0.0.1:1,a:1/x", "etcd://127.example:1/x"}) {
    EXPECT_TRUE(failure(uri, variables).starts_with("DENIED: the password of \"me\" would go over the network")) << uri;
  }
  variables["DISTAG_ETCD_CACERT"] = "ca";
  EXPECT_EQ(failure("etcd://10.0.0.1:1/x", variables), "none");
}

}  // namespace
}  // namespace distag
