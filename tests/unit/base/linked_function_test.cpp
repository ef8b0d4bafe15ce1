#include "base/linked_function.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

extern "C" {
__attribute__((visibility("default"), noinline)) double distag_test_own(double x) { return x; }
}

namespace distag {
namespace {

void* address(double (*function)(double)) { return reinterpret_cast<void*>(function); }

TEST(LinkedFunctionTest, IsThatOfALibraryThisOneIsLinkedWith) {
  void* const math = dlopen("libm.so.6", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(math, nullptr);
  EXPECT_EQ(find_linked("cbrt", address(&distag_test_own)), dlsym(math, "cbrt"));
  dlclose(math);
}

TEST(LinkedFunctionTest, IsTheBoundOneWhereNoLibraryHasTheName) {
  EXPECT_EQ(find_linked("distag_test_own", address(&distag_test_own)), address(&distag_test_own));
}

TEST(LinkedFunctionTest, ToldApartByTheirFiles) {
  double (*const root)(double) = &std::sqrt;
  void* const found = find_linked("cbrt", address(root));
  EXPECT_TRUE(lie_together(found, find_linked("erf", address(root))));
  EXPECT_FALSE(lie_together(found, address(&distag_test_own)));
  EXPECT_NE(std::string(file_of(found)).find("libm"), std::string::npos);
  EXPECT_FALSE(is_displaced("cbrt", found));
  EXPECT_TRUE(is_displaced("cbrt", address(&distag_test_own)));
  EXPECT_FALSE(is_displaced("distag_no_such_name", found));
}

}  // namespace
}  // namespace distag
