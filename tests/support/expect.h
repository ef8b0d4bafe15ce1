#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

// Failures as values, for tests of code that must throw.
namespace distag::testing {

// The error that the code throws, which has to have a message; OK when it throws none.
template <typename Code>
Error error_of(Code&& code) {
  try {
    code();
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    return error;
  }
  return Error(Status::kOk, "");
}

template <typename Code>
Status status_of(Code&& code) {
  return error_of(code).status();
}

// "INVALID_ARGUMENT: add: shapes [2] and [3] do not broadcast"
template <typename Code>
std::string failure_of(Code&& code) {
  const Error error = error_of(code);
  if (error.status() == Status::kOk) return "no failure";
  return std::string(status_name(error.status())) + ": " + error.message();
}

}  // namespace distag::testing
