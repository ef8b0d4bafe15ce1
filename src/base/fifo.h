#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace distag {

// A queue in one piece of memory, and in none as long as nothing was in it: for the many that are empty nearly always.
// Elements move when others go. Only push_back allocates, and put_back after tidy().
template <typename T>
class Fifo {
 public:
  using Iterator = typename std::vector<T>::iterator;

  bool empty() const { return first_ == items_.size(); }
  size_t size() const { return items_.size() - first_; }
  T& front() { return items_[first_]; }
  const T& front() const { return items_[first_]; }
  T& back() { return items_.back(); }
  T& operator[](size_t index) { return items_[first_ + index]; }
  const T& operator[](size_t index) const { return items_[first_ + index]; }
  Iterator begin() { return items_.begin() + static_cast<ptrdiff_t>(first_); }
  Iterator end() { return items_.end(); }

  void push_back(T item) { items_.push_back(std::move(item)); }
  // Nothing is destroyed while the queue changes: what was in front is the caller's.
  T take_front() {
    T item = std::move(items_[first_]);
    ++first_;
    settle();
    return item;
  }
  // As take_front(), of one that may be put back without memory, until tidy().
  T borrow_front() { return std::move(items_[first_++]); }
  void put_back(T item) {
    if (first_ > 0) {
      items_[--first_] = std::move(item);
    } else {
      items_.insert(items_.begin(), std::move(item));
    }
  }
  void tidy() { settle(); }
  void erase(Iterator place) {
    const T erased = std::move(*place);
    items_.erase(place);
    settle();
  }
  void clear() {
    first_ = 0;
    std::exchange(items_, {}).clear();
  }

 private:
  static constexpr size_t kKept = 16;  // room that an empty queue keeps

  void settle() {
    if (empty()) {
      first_ = 0;
      items_.clear();
      if (items_.capacity() > kKept) std::vector<T>().swap(items_);
    } else if (2 * first_ > items_.size() && first_ > kKept) {
      items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(first_));
      first_ = 0;
    }
  }

  std::vector<T> items_;
  size_t first_ = 0;
};

}  // namespace distag
