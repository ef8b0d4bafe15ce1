#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/zmtp/curve_boxes.h"

namespace distag {

// The dialled side of CURVE, for one connection: HELLO, WELCOME, INITIATE, READY. The client has to know the key of
// this side, and proves its own by INITIATE: the group's, or one of those that may connect.
class CurveServer final : public CurveSide {
 public:
  explicit CurveServer(const SocketKeys& keys);  // the keys must outlive this
  ~CurveServer() override;
  CurveServer(const CurveServer&) = delete;
  CurveServer& operator=(const CurveServer&) = delete;

  std::vector<std::byte> answer(std::span<const std::byte> command) override;
  bool is_ready() const override { return stage_ == Stage::kReady; }
  std::string_view properties() const override { return properties_; }
  CurveBoxes& boxes() override { return boxes_; }
  std::string peer_name() const override { return client_name_; }
  bool is_still_let_in() override;

 private:
  enum class Stage { kHello, kInitiate, kReady };

  std::vector<std::byte> answer_hello(std::span<const std::byte> command);
  std::vector<std::byte> answer_initiate(std::span<const std::byte> command);
  void check_vouch(const uint8_t* initiate);
  bool find_client();

  const SocketKeys& keys_;
  CurveKeyPair own_short_;
  CurveKey client_short_{};
  CurveKey client_key_{};  // the lasting one
  std::string client_name_;
  uint64_t ring_version_ = 0;  // of the ring in which the key was found
  std::array<uint8_t, curve::kCookie> cookie_{};
  // Until INITIATE for the lasting key and the client's short-term one, then for both short-term keys.
  CurveBoxes boxes_{CurveBoxes::Side::kServer};
  Stage stage_ = Stage::kHello;
  std::string properties_;
};

}  // namespace distag
