#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/zmtp/curve_boxes.h"

namespace distag {

// The dialling side of CURVE, for one connection. Only the holder of the server's key can answer HELLO. Each connection
// has short-term keys of its own: a lasting key that leaks later does not decrypt earlier traffic.
class CurveClient final : public CurveSide {
 public:
  explicit CurveClient(const SocketKeys& keys);  // the keys must outlive this
  ~CurveClient() override;
  CurveClient(const CurveClient&) = delete;
  CurveClient& operator=(const CurveClient&) = delete;

  // The body of the first command.
  std::vector<std::byte> hello();

  std::vector<std::byte> answer(std::span<const std::byte> command) override;
  bool is_ready() const override { return stage_ == Stage::kReady; }
  std::string_view properties() const override { return properties_; }
  CurveBoxes& boxes() override { return boxes_; }
  std::string peer_name() const override { return {}; }
  bool is_still_let_in() override { return true; }  // only the dialled side checks

 private:
  enum class Stage { kWelcome, kAnswered, kReady };

  std::vector<std::byte> answer_welcome(std::span<const std::byte> command);
  void take_ready(std::span<const std::byte> command);

  const SocketKeys& keys_;
  CurveKeyPair own_short_;
  // Until WELCOME for the server's lasting key and this side's short-term one, then for both short-term keys.
  CurveBoxes boxes_{CurveBoxes::Side::kClient};
  Stage stage_ = Stage::kWelcome;
  std::string properties_;
};

}  // namespace distag
