#include "base/error.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace distag {
namespace {

TEST(Error, CarriesStatusAndFormattedText) {
  try {
    fail(Status::kNotFound, "function \"{}\" is not on rank {}", "embed", 3);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kNotFound);
    EXPECT_EQ(error.message(), "function \"embed\" is not on rank 3");
    EXPECT_STREQ(error.what(), error.message().c_str());
    EXPECT_EQ(error.origin_rank(), -1);
    EXPECT_FALSE(error.may_have_run());
  }
}

TEST(Error, ContextGoesBeforeTheMessage) {
  Error error(Status::kInvalidArgument, "index 7 out of range");
  error.add_context("gather").add_context("call \"embed\"").set_origin_rank(2).set_may_have_run(true);
  EXPECT_EQ(error.message(), "call \"embed\": gather: index 7 out of range");
  EXPECT_EQ(error.origin_rank(), 2);
  EXPECT_TRUE(error.may_have_run());
}

TEST(Error, StatusNames) {
  EXPECT_STREQ(status_name(Status::kOk), "OK");
  EXPECT_STREQ(status_name(Status::kUnreachedSend), "UNREACHED_SEND");
  EXPECT_STREQ(status_name(Status::kDiverged), "DIVERGED");
  EXPECT_STREQ(status_name(Status::kUser), "USER");
  EXPECT_STREQ(status_name(static_cast<Status>(1234)), "USER");
  EXPECT_STREQ(status_name(static_cast<Status>(7)), "UNKNOWN");
}

template <typename Thrown>
Error translate(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return current_error();
  }
}

TEST(Error, AnyExceptionBecomesAnError) {
  EXPECT_EQ(translate(Error(Status::kDenied, "no")).status(), Status::kDenied);
  EXPECT_EQ(translate(std::bad_alloc()).status(), Status::kOutOfMemory);
  EXPECT_EQ(translate(std::runtime_error("broken")).status(), Status::kInternal);
  EXPECT_EQ(translate(std::runtime_error("broken")).message(), "broken");
  EXPECT_EQ(translate(42).status(), Status::kInternal);
}

}  // namespace
}  // namespace distag
