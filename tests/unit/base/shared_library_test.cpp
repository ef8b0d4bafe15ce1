#include "base/shared_library.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace distag {
namespace {

TEST(SharedLibrary, TakesTheFirstThatIsThere) {
  const SharedLibrary library({"libdistag-of-nobody.so.1", "libm.so.6"});
  double (*root)(double) = nullptr;
  library.find("sqrt", root);
  EXPECT_EQ(root(9.0), 3.0);
}

TEST(SharedLibrary, SaysForEachNameWhyItIsNotThere) {
  try {
    SharedLibrary({"libdistag-of-nobody.so.1", "libdistag-of-nobody.so.2"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kUnsupported);
    for (const char* name : {"libdistag-of-nobody.so.1", "libdistag-of-nobody.so.2"}) {
      EXPECT_NE(error.message().find(name), std::string::npos) << error.message();
    }
  }
}

TEST(SharedLibrary, NamesASymbolThatItHasNot) {
  const SharedLibrary library({"libm.so.6"});
  void (*nothing)() = nullptr;
  try {
    library.find("distag_of_nobody", nothing);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kUnsupported);
    EXPECT_EQ(error.message(), "libm.so.6 has no distag_of_nobody: it is too old");
  }
}

}  // namespace
}  // namespace distag
