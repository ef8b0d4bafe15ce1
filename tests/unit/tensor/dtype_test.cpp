#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace distag {
namespace {

TEST(DtypeTest, HasSizesAndNames) {
  EXPECT_EQ(dtype_size(Dtype::kFloat32), 4u);
  EXPECT_EQ(dtype_size(Dtype::kFloat64), 8u);
  EXPECT_EQ(dtype_size(Dtype::kInt64), 8u);
  EXPECT_EQ(dtype_size(Dtype::kBool), 1u);
  EXPECT_EQ(dtype_size(static_cast<Dtype>(0)), 0u);
  EXPECT_STREQ(dtype_name(Dtype::kInt64), "int64");
  EXPECT_STREQ(dtype_name(static_cast<Dtype>(77)), "unknown");
  EXPECT_STREQ(dtype_name(static_cast<Dtype>(-1)), "unknown");
}

TEST(DtypeTest, NamesADtypeThatIsNotSupported) {
  try {
    checked_dtype_size(static_cast<Dtype>(5));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kUnsupported);
    EXPECT_NE(error.message().find("float16"), std::string::npos);
  }
}

TEST(DtypeTest, PromotesToTheHigherOne) {
  EXPECT_EQ(promote(Dtype::kBool, Dtype::kInt64), Dtype::kInt64);
  EXPECT_EQ(promote(Dtype::kFloat32, Dtype::kInt64), Dtype::kFloat32);
  EXPECT_EQ(promote(Dtype::kFloat32, Dtype::kFloat64), Dtype::kFloat64);
  EXPECT_EQ(promote(Dtype::kBool, Dtype::kBool), Dtype::kBool);
}

}  // namespace
}  // namespace distag
