#include "coll/line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace distag {
namespace {

// The finaliser of MurmurHash3 (Appleby 2011), over each number.
uint64_t mixed(uint64_t hash, uint64_t number) {
  hash = (hash ^ number) * 0xFF51AFD7ED558CCDu;
  hash = (hash ^ (hash >> 33)) * 0xC4CEB9FE1A85EC53u;
  return hash ^ (hash >> 33);
}

const wire::Calls::Made* find_in(const std::deque<wire::Calls::Made>& calls, uint64_t number) {
  if (calls.empty() || number < calls.front().number || number > calls.back().number) return nullptr;
  return &calls[number - calls.front().number];
}

std::string call_text(const Program& program, uint64_t number) {
  const wire::Calls::Made* made = find_in(program.calls, number);
  return made == nullptr ? fmt::format("{} has made no call of that number", program.member)
                         : fmt::format("{} calls {}", program.member, made->text);
}

bool reads_alike(const Program& a, const Program& b, uint64_t number) {
  const wire::Calls::Made* of_a = find_in(a.calls, number);
  const wire::Calls::Made* of_b = find_in(b.calls, number);
  return of_a != nullptr && of_b != nullptr && of_a->text == of_b->text;
}

}  // namespace

Fingerprint& Fingerprint::add(uint64_t number) {
  value_ = mixed(value_, number);
  return *this;
}

Fingerprint& Fingerprint::add(std::string_view text) {
  add(text.size());
  for (char c : text) add(static_cast<unsigned char>(c));
  return *this;
}

Fingerprint& Fingerprint::add(std::span<const std::byte> elements) {
  add(uint64_t{elements.size()});
  for (; elements.size() >= sizeof(uint64_t); elements = elements.subspan(sizeof(uint64_t))) {
    uint64_t word;
    std::memcpy(&word, elements.data(), sizeof word);
    add(word);
  }
  for (const std::byte rest : elements) add(uint64_t{static_cast<uint8_t>(rest)});
  return *this;
}

uint64_t Line::begin_call(std::string text, uint64_t fingerprint) {
  hash_ = mixed(hash_ + ++last_, fingerprint);
  calls_.push_back({last_, hash_, std::move(text)});
  if (calls_.size() > kRemembered) calls_.pop_front();
  return last_;
}

const Line::Made* Line::find(uint64_t number) const { return find_in(calls_, number); }

std::string describe_divergence(const Program& a, const Program& b) {
  const auto& fewer = a.calls.size() < b.calls.size() ? a.calls : b.calls;
  if (fewer.empty()) return "programs differ";
  const uint64_t first = std::max(a.calls.front().number, b.calls.front().number);
  const uint64_t last = std::min(a.calls.back().number, b.calls.back().number);
  uint64_t differing = first;
  while (differing <= last && find_in(a.calls, differing)->hash == find_in(b.calls, differing)->hash) ++differing;
  if (differing == first && first > 1) {
    return fmt::format("programs differ before call {}, the first that both remember: {}, {}", first,
                       call_text(a, first), call_text(b, first));
  }
  std::string text =
      fmt::format("programs differ at call {}: {}, {}", differing, call_text(a, differing), call_text(b, differing));
  if (reads_alike(a, b, differing)) {
    text +=
        "; they read alike, so they take other tensors, or tensors of which one requires a gradient, or other flags";
  }
  if (differing > first)
    text += fmt::format("; the last equal call was {}, {}", differing - 1, find_in(a.calls, differing - 1)->text);
  return text;
}

}  // namespace distag
