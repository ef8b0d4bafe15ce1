// The references of distag's rows: raw DEALER/ROUTER ping-pongs of the bytes of one call, and cblas_sgemm.
#include <cblas.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "bench/harness.h"

namespace bench {

namespace {

// A header as a small call has, and a payload frame: two frames each way, over ipc as distag's default, or over tcp.
// Nothing is copied but by libzmq and the kernel.
constexpr size_t kHeaderBytes = 160;

void must(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "raw ping-pong: %s: %s\n", what, zmq_strerror(zmq_errno()));
  std::exit(1);
}

// Keys of CURVE, in text.
struct KeyPair {
  KeyPair() { must(zmq_curve_keypair(public_key, secret_key) == 0, "keys"); }
  char public_key[41];
  char secret_key[41];
};

struct Keys {
  KeyPair server;
  KeyPair client;
};

void set_key(void* socket, int option, const char* key) {
  must(zmq_setsockopt(socket, option, key, std::strlen(key)) == 0, "key");
}

// Writes the endpoint at which it answers to `told`. `keys`: nullptr: without CURVE.
void answer_pings(const std::string& address, const Keys* keys, int count, int told) {
  void* context = zmq_ctx_new();
  void* router = zmq_socket(context, ZMQ_ROUTER);
  if (keys != nullptr) {
    const int is_server = 1;
    must(zmq_setsockopt(router, ZMQ_CURVE_SERVER, &is_server, sizeof is_server) == 0, "server");
    set_key(router, ZMQ_CURVE_SECRETKEY, keys->server.secret_key);
  }
  must(zmq_bind(router, address.c_str()) == 0, "bind");
  char endpoint[256];
  size_t size = sizeof endpoint;
  must(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size) == 0, "endpoint");
  must(write(told, endpoint, size) == static_cast<ssize_t>(size), "tell the endpoint");
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

void raw_ping_pong(const char* name, Way way, size_t size, int count, int warm, const char* unit) {
  char directory[] = "/tmp/distag-bench-XXXXXX";
  must(mkdtemp(directory) != nullptr, "mkdtemp");
  const std::string path = std::string(directory) + "/ping";
  const std::string address = way == Way::kPrivate ? "ipc://" + path : "tcp://127.0.0.1:*";
  std::optional<Keys> keys;
  if (way == Way::kCurve) keys.emplace();
  int told[2];
  must(pipe(told) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    answer_pings(address, keys ? &*keys : nullptr, count + warm, told[1]);
    _exit(0);
  }
  close(told[1]);
  char endpoint[256];
  must(read(told[0], endpoint, sizeof endpoint) > 0, "hear the endpoint");
  close(told[0]);
  void* context = zmq_ctx_new();
  void* dealer = zmq_socket(context, ZMQ_DEALER);
  if (keys) {
    set_key(dealer, ZMQ_CURVE_SERVERKEY, keys->server.public_key);
    set_key(dealer, ZMQ_CURVE_PUBLICKEY, keys->client.public_key);
    set_key(dealer, ZMQ_CURVE_SECRETKEY, keys->client.secret_key);
  }
  must(zmq_connect(dealer, endpoint) == 0, "connect");
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
         unit);
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
  return {{"raw_ping_pong_4B", [] { raw_ping_pong("raw_ping_pong_4B", Way::kPrivate, 4, 4000, 200, "us"); }},
          {"raw_ping_pong_1MB", [] { raw_ping_pong("raw_ping_pong_1MB", Way::kPrivate, 1 << 20, 400, 20, "us"); }},
          {"raw_tcp_ping_pong_4B", [] { raw_ping_pong("raw_tcp_ping_pong_4B", Way::kTcp, 4, 4000, 200, "us"); }},
          {"raw_tcp_ping_pong_64MB", [] { raw_ping_pong("raw_tcp_ping_pong_64MB", Way::kTcp, 1 << 26, 10, 3, "ms"); }},
          {"raw_curve_ping_pong_4B", [] { raw_ping_pong("raw_curve_ping_pong_4B", Way::kCurve, 4, 4000, 200, "us"); }},
          {"raw_curve_ping_pong_64MB",
           [] { raw_ping_pong("raw_curve_ping_pong_64MB", Way::kCurve, 1 << 26, 10, 3, "ms"); }},
          {"cblas_sgemm_512", plain_sgemm}};
}

}  // namespace bench
