#include "base/future_deadline.h"

#include <utility>

namespace distag {

void set_deadline(Loop& loop, const std::shared_ptr<Completion>& completion, Nanos deadline,
                  UniqueFunction<Error()> make_error) {
  loop.post_or_drop([&loop, completion, deadline, make_error = std::move(make_error)]() mutable {
    if (completion->is_done()) return;
    const Loop::TimerId timer = loop.start_timer(
        deadline, [completion, make_error = std::move(make_error)]() mutable { completion->fail(make_error()); });
    completion->on_done([&loop, timer] {
      // Without a loop there is no timer either.
      [[maybe_unused]] const bool is_cancelled = run_on(loop, [&loop, timer] { loop.cancel_timer(timer); });
    });
  });
}

}  // namespace distag
