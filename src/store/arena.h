#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace distag::store {

// Memory of texts and lists, which live as long as the arena and never move. Its growth copies nothing, so at its peak
// it takes little more than they have.
class Arena {
 public:
  Arena() = default;
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept {
    blocks_ = std::exchange(other.blocks_, {});
    block_ = std::exchange(other.block_, nullptr);
    used_ = std::exchange(other.used_, 0);
    return *this;
  }

  template <typename List>
  auto copy_list(const List& list) {
    const std::span from(list.data(), list.size());
    using Item = std::remove_const_t<typename decltype(from)::element_type>;
    static_assert(std::is_trivially_copyable_v<Item>);
    if (from.empty()) return std::span<Item>();
    auto* const first = reinterpret_cast<Item*>(take(from.size_bytes(), alignof(Item)));
    std::uninitialized_copy(from.begin(), from.end(), first);
    return std::span<Item>(first, from.size());
  }
  std::string_view copy_text(std::string_view text) {
    const auto kept = copy_list(text);
    return {kept.data(), kept.size()};
  }

 private:
  static constexpr size_t kBlock = size_t{16} << 10;

  std::byte* take(size_t size, size_t alignment) {
    if (size > kBlock / 4) return add_block(size);
    used_ = (used_ + alignment - 1) / alignment * alignment;
    if (block_ == nullptr || used_ + size > kBlock) {
      block_ = add_block(kBlock);
      used_ = 0;
    }
    std::byte* const place = block_ + used_;
    used_ += size;
    return place;
  }
  std::byte* add_block(size_t size) {
    return blocks_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(size)).get();
  }

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* block_ = nullptr;  // the one that is filled now
  size_t used_ = 0;             // bytes of it
};

}  // namespace distag::store
