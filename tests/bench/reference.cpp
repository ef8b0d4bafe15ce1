// What distag's rows are held against: a raw DEALER/ROUTER ping-pong of the bytes of one small call, and cblas_sgemm.
#include <cblas.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "bench/harness.h"

namespace bench {

namespace {

// A header as a small call has, and a payload frame of 4 bytes: two frames each way, over ipc as distag's default.
constexpr size_t kHeaderBytes = 160;

void must(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "raw ping-pong: %s: %s\n", what, zmq_strerror(zmq_errno()));
  std::exit(1);
}

void answer_pings(const std::string& address, int count) {
  void* context = zmq_ctx_new();
  void* router = zmq_socket(context, ZMQ_ROUTER);
  must(zmq_bind(router, address.c_str()) == 0, "bind");
  for (int i = 0; i < count; ++i) {
    zmq_msg_t parts[3];
    for (zmq_msg_t& part : parts) {
      zmq_msg_init(&part);
      must(zmq_msg_recv(&part, router, 0) >= 0, "receive");
    }
    for (int p = 0; p < 3; ++p) must(zmq_msg_send(&parts[p], router, p < 2 ? ZMQ_SNDMORE : 0) >= 0, "send");
  }
  zmq_close(router);
  zmq_ctx_term(context);
}

void raw_ping_pong() {
  constexpr int kCount = 4000;
  constexpr int kWarm = 200;
  char directory[] = "/tmp/distag-bench-XXXXXX";
  must(mkdtemp(directory) != nullptr, "mkdtemp");
  const std::string path = std::string(directory) + "/ping";
  const std::string address = "ipc://" + path;
  const pid_t child = fork();
  if (child == 0) {
    answer_pings(address, kCount + kWarm);
    _exit(0);
  }
  void* context = zmq_ctx_new();
  void* dealer = zmq_socket(context, ZMQ_DEALER);
  must(zmq_connect(dealer, address.c_str()) == 0, "connect");
  const std::string header(kHeaderBytes, 'h');
  char buffer[kHeaderBytes];
  report("raw_ping_pong_4B",
         timed(
             [&] {
               zmq_send(dealer, header.data(), header.size(), ZMQ_SNDMORE);
               zmq_send(dealer, "1234", 4, 0);
               must(zmq_recv(dealer, buffer, sizeof buffer, 0) >= 0, "receive");
               must(zmq_recv(dealer, buffer, sizeof buffer, 0) == 4, "receive");
             },
             kCount, kWarm),
         "us");
  zmq_close(dealer);
  zmq_ctx_term(context);
  int status = 0;
  waitpid(child, &status, 0);
  unlink(path.c_str());
  rmdir(directory);
}

void plain_sgemm() {
  constexpr int kSize = 512;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> a(kSize * kSize), b(kSize * kSize), c(kSize * kSize);
  for (float& x : a) x = uniform(random);
  for (float& x : b) x = uniform(random);
  report("cblas_sgemm_512",
         timed(
             [&] {
               cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize, 1.0f, a.data(), kSize,
                           b.data(), kSize, 0.0f, c.data(), kSize);
             },
             200, 20),
         "us");
}

}  // namespace

std::vector<Row> reference_rows() { return {{"raw_ping_pong_4B", raw_ping_pong}, {"cblas_sgemm_512", plain_sgemm}}; }

}  // namespace bench
