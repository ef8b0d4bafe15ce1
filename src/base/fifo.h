#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace distag {

// A queue that takes no memory until something is pushed: for the many that are nearly always empty. An element stays
// at its address until it is taken, so that adding one to thousands moves only pointers. Only push_back allocates, and
// put_back after tidy().
template <typename T>
class Fifo {
 public:
  bool empty() const { return first_ == items_.size(); }
  size_t size() const { return items_.size() - first_; }
  T& front() { return *items_[first_]; }
  const T& front() const { return *items_[first_]; }
  T& back() { return *items_.back(); }
  T& operator[](size_t index) { return *items_[first_ + index]; }
  const T& operator[](size_t index) const { return *items_[first_ + index]; }

  void push_back(T item) { items_.push_back(std::make_unique<T>(std::move(item))); }
  // Nothing is destroyed while the queue changes: the caller gets the element.
  T take_front() {
    const std::unique_ptr<T> item = std::move(items_[first_++]);
    tidy();
    return std::move(*item);
  }
  // As take_front(), but the element can be put back without memory until tidy().
  std::unique_ptr<T> borrow_front() { return std::move(items_[first_++]); }
  void put_back(std::unique_ptr<T> item) {
    if (first_ > 0) {
      items_[--first_] = std::move(item);
    } else {
      items_.insert(items_.begin(), std::move(item));
    }
  }
  void tidy() {
    if (empty()) {
      first_ = 0;
      items_.clear();
      if (items_.capacity() > kKept) std::vector<std::unique_ptr<T>>().swap(items_);
    } else if (2 * first_ > items_.size() && first_ > kKept) {
      items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(first_));
      first_ = 0;
    }
  }
  void erase(size_t index) {
    if (index == 0) {
      take_front();
      return;
    }
    const auto place = items_.begin() + static_cast<ptrdiff_t>(first_ + index);
    const std::unique_ptr<T> erased = std::move(*place);
    items_.erase(place);
    tidy();
  }
  void clear() {
    first_ = 0;
    std::exchange(items_, {}).clear();
  }
  // The index of the first element for which `holds` is true, or size().
  template <typename Predicate>
  size_t find(Predicate&& holds) const {
    size_t index = 0;
    while (index < size() && !holds((*this)[index])) ++index;
    return index;
  }

 private:
  static constexpr size_t kKept = 16;  // room that an empty queue keeps

  std::vector<std::unique_ptr<T>> items_;
  size_t first_ = 0;
};

}  // namespace distag
