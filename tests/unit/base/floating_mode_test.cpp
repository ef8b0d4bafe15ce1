#include "base/floating_mode.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <thread>

#include "base/host_code.h"
#include "base/thread.h"

namespace distag {
namespace {

// Each test has a thread of its own, so that no mode is left behind.
template <typename Body>
void on_a_thread(int rounding, Body body) {
  std::thread([&] {
    std::fesetround(rounding);
    body();
  }).join();
}

TEST(FloatingMode, IsTheDefaultInsideAndTheThreadsOwnAfterwards) {
  on_a_thread(FE_UPWARD, [] {
    {
      const DefaultFloatingMode mode;
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      {
        const DefaultFloatingMode nested;
        EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      }
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    }
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
  });
}

TEST(FloatingMode, TrapsAreOffInsideAndFlagsThatRoseThereDoNotTrapAfterwards) {
  std::thread([] {
    feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    {
      const DefaultFloatingMode mode;
      EXPECT_EQ(fegetexcept(), 0);
      std::feraiseexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
      volatile long double zero = 0;
      volatile long double infinite = 1 / zero;
      EXPECT_GT(infinite, 1);
    }
    EXPECT_EQ(fegetexcept(), FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    volatile long double three = 3;
    EXPECT_EQ(three + 1, 4);
  }).join();
}

TEST(FloatingMode, HostCodeHasTheModeOfItsThreadAndWhatItSetsEndsWithIt) {
  on_a_thread(FE_UPWARD, [] {
    const auto set_another = [] {
      call_host([] {
        EXPECT_EQ(std::fegetround(), FE_UPWARD);
        {
          const DefaultFloatingMode nested;
          call_host([] { EXPECT_EQ(std::fegetround(), FE_UPWARD); });
          EXPECT_EQ(std::fegetround(), FE_TONEAREST);
        }
        EXPECT_EQ(std::fegetround(), FE_UPWARD);
        std::fesetround(FE_DOWNWARD);
      });
    };
    {
      const DefaultFloatingMode mode;
      set_another();
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      set_another();
    }
    set_another();
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
  });
}

TEST(FloatingMode, AHookGivesCallbacksOfItsThreadAMode) {
  int in_body = -1;
  int in_host_code = -1;
  const ThreadHooks hooks{[](const char*) { std::fesetround(FE_TOWARDZERO); }, nullptr};
  on_a_thread(FE_UPWARD, [&] {
    start_thread("modes", hooks, Task([&] {
                   in_body = std::fegetround();
                   call_host([&] { in_host_code = std::fegetround(); });
                 }))
        .join();
  });
  EXPECT_EQ(in_body, FE_TONEAREST);
  EXPECT_EQ(in_host_code, FE_TOWARDZERO);
}

}  // namespace
}  // namespace distag
