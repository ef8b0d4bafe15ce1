#pragma once

#include <memory>
#include <utility>

#include "base/each_step.h"
#include "base/loop.h"

namespace distag {

// Splits long work of the loop into short tasks, so that others get their turn in between. Work that is left when this
// goes is not done. On the loop.
class Turns {
 public:
  static constexpr size_t kItems = 64;

  // `items` are those of one turn.
  explicit Turns(Loop& loop, size_t items = kItems) : loop_(loop), items_(items) {}

  // Calls act(item) for each item of a container: for the first ones now, for the others in tasks of their own, in
  // order. Before its turn an item is left as it is: `act` checks whether there is still something to do. On a stopping
  // loop all come at once. A failure leaves the other items their turn; the first one of a turn is thrown at its end.
  template <typename Items, typename Act>
  void for_each(Items items, Act act) {
    for_each(std::move(items), std::move(act), [] {});
  }

  // The same, and calls then() after the last one.
  template <typename Items, typename Act, typename Then>
  void for_each(Items items, Act act, Then then) {
    assert_on_loop(loop_);
    take_turn(std::make_shared<Work<Items, Act, Then>>(std::move(items), std::move(act), std::move(then), alive_));
  }

 private:
  template <typename Items, typename Act, typename Then>
  struct Work {
    Work(Items items_, Act act_, Then then_, std::weak_ptr<char> alive_)
        : items(std::move(items_)),
          act(std::move(act_)),
          then(std::move(then_)),
          alive(std::move(alive_)),
          next(items.begin()) {}

    // False after the last item.
    bool take_turn(EachStep& each, size_t count) {
      for (size_t i = 0; i < count && next != items.end(); ++i, ++next) {
        each([this] { act(*next); });
      }
      if (next != items.end()) return true;
      each([this] { then(); });
      return false;
    }

    Items items;
    Act act;
    Then then;
    const std::weak_ptr<char> alive;  // gone with the Turns
    TaskPlace place;
    typename Items::iterator next;
  };

  template <typename SomeWork>
  void take_turn(const std::shared_ptr<SomeWork>& work) {
    EachStep each;
    while (work->take_turn(each, items_) && !post_turn(work)) {
    }
    each.check();
  }

  // False when the loop is stopping.
  template <typename SomeWork>
  bool post_turn(const std::shared_ptr<SomeWork>& work) noexcept {
    return loop_.post(work->place, [this, work] {
      if (!work->alive.expired()) take_turn(work);
    });
  }

  Loop& loop_;
  const size_t items_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace distag
