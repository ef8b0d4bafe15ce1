#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

namespace distag {

// A queue that takes no memory as long as nothing was in it: for the many that are empty nearly always. An element
// stays where it is until it goes, so that adding one takes as long with thousands as with none. Only push_back
// allocates, and put_back after tidy().
template <typename T>
class Fifo {
 public:
  using Iterator = typename std::deque<T>::iterator;

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return (*items_)[borrowed_]; }
  const T& front() const { return (*items_)[borrowed_]; }
  T& back() { return items_->back(); }
  T& operator[](size_t index) { return (*items_)[borrowed_ + index]; }
  const T& operator[](size_t index) const { return (*items_)[borrowed_ + index]; }
  Iterator begin() { return items_ == nullptr ? Iterator() : items_->begin() + static_cast<ptrdiff_t>(borrowed_); }
  Iterator end() { return items_ == nullptr ? Iterator() : items_->end(); }

  void push_back(T item) {
    if (items_ == nullptr) items_ = std::make_unique<std::deque<T>>();
    items_->push_back(std::move(item));
    most_ = std::max(most_, ++size_);
  }
  // Nothing is destroyed while the queue changes: what was in front is the caller's.
  T take_front() {
    T item = borrow_front();
    tidy();
    return item;
  }
  // As take_front(), of one that may be put back without memory, until tidy().
  T borrow_front() {
    --size_;
    return std::move((*items_)[borrowed_++]);
  }
  void put_back(T item) {
    if (borrowed_ > 0) {
      (*items_)[--borrowed_] = std::move(item);
    } else {
      items_->push_front(std::move(item));
    }
    ++size_;
  }
  void tidy() {
    for (; borrowed_ > 0; --borrowed_) items_->pop_front();
    if (empty() && most_ > kKept) clear();
  }
  void erase(Iterator place) {
    const T erased = std::move(*place);
    items_->erase(place);
    --size_;
    tidy();
  }
  void clear() {
    size_ = 0;
    borrowed_ = 0;
    most_ = 0;
    std::exchange(items_, nullptr).reset();
  }

 private:
  static constexpr size_t kKept = 16;  // one that had more gives its memory back once it is empty

  std::unique_ptr<std::deque<T>> items_;
  size_t size_ = 0;      // known without a look at them
  size_t borrowed_ = 0;  // in front, and moved from
  size_t most_ = 0;      // since it took memory
};

}  // namespace distag
