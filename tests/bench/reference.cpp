// The references of distag's rows: raw DEALER/ROUTER ping-pongs of the bytes of one call, and cblas_sgemm.
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

// A header as a small call has, and a payload frame: two frames each way, over ipc as distag's default. Nothing is
// copied but by libzmq and the kernel.
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

void send_payload(void* socket, std::string& payload) {
  zmq_msg_t message;
  zmq_msg_init_data(
      &message, payload.data(), payload.size(), [](void*, void*) {}, nullptr);
  must(zmq_msg_send(&message, socket, 0) >= 0, "send");
}

void receive_payload(void* socket, size_t size) {
  zmq_msg_t message;
  zmq_msg_init(&message);
  must(zmq_msg_recv(&message, socket, 0) == static_cast<int>(size), "receive");
  zmq_msg_close(&message);
}

void raw_ping_pong(const char* name, size_t size, int count, int warm) {
  char directory[] = "/tmp/distag-bench-XXXXXX";
  must(mkdtemp(directory) != nullptr, "mkdtemp");
  const std::string path = std::string(directory) + "/ping";
  const std::string address = "ipc://" + path;
  const pid_t child = fork();
  if (child == 0) {
    answer_pings(address, count + warm);
    _exit(0);
  }
  void* context = zmq_ctx_new();
  void* dealer = zmq_socket(context, ZMQ_DEALER);
  must(zmq_connect(dealer, address.c_str()) == 0, "connect");
  std::string header(kHeaderBytes, 'h'), payload(size, 'p');
  report(name,
         timed(
             [&] {
               must(zmq_send(dealer, header.data(), header.size(), ZMQ_SNDMORE) >= 0, "send");
               send_payload(dealer, payload);
               receive_payload(dealer, header.size());
               receive_payload(dealer, size);
             },
             count, warm),
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

std::vector<Row> reference_rows() {
  return {{"raw_ping_pong_4B", [] { raw_ping_pong("raw_ping_pong_4B", 4, 4000, 200); }},
          {"raw_ping_pong_1MB", [] { raw_ping_pong("raw_ping_pong_1MB", 1 << 20, 400, 20); }},
          {"cblas_sgemm_512", plain_sgemm}};
}

}  // namespace bench
