// Lists of the wrong length, where C reads as many as something else says: tests/bindings/lists/lists.txt.
#include <gtest/gtest.h>

#include <distag.hpp>

namespace {

using namespace distag;

template <class Call>
void refused(const char* words, Call call) {
  status err;
  call(err);
  EXPECT_EQ(err.code(), errc::invalid_argument);
  EXPECT_NE(std::string(err.message()).find(words), std::string::npos) << err.message();
}

TEST(Lists, StridesAreAsManyAsSizes) {
  const auto owner = std::make_shared<std::vector<double>>(6, 2.0);
  const std::vector<std::int64_t> one = {1}, three = {3, 1, 1};
  for (const auto& strides : {one, three}) {
    refused("strides", [&](status& err) {
      const tensor made = tensor::borrow(owner->data(), owner->size(), {2, 3}, owner, strides, err);
      EXPECT_FALSE(made);
    });
  }
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(tensor::borrow(owner->data(), owner->size(), {2, 3}, owner, {3, 1}).sum().item(), 12.0);
}

TEST(Lists, WindowsHaveTwoNumbers) {
  const tensor x = zeros({1, 1, 4, 4}), weight = ones({1, 1, 2, 2});
  for (const ints& given : {ints{1}, ints{1, 1, 1}}) {
    refused("stride", [&](status& err) { conv2d(x, weight, {}, given, err); });
    refused("padding", [&](status& err) { conv2d(x, weight, {}, {1, 1}, given, err); });
    refused("kernel", [&](status& err) { max_pool2d(x, given, err); });
    refused("stride", [&](status& err) { max_pool2d(x, {2, 2}, given, err); });
    refused("padding", [&](status& err) { max_pool2d(x, {2, 2}, {2, 2}, given, err); });
  }
}

TEST(Lists, SeedsAreAsManyAsRoots) {
  const tensor x = ones({3}).requires_grad(true), seed = ones({3});
  const context local = context::local();
  backward_options options;
  for (const std::size_t count : {1u, 3u}) {
    options.seeds.assign(count, seed);
    refused("a seed for each root", [&](status& err) { local.backward({x * 1.0, x * 2.0}, options, err); });
  }
  options.seeds.assign(2, seed);
  local.backward({x * 1.0, x * 2.0}, options);
  EXPECT_EQ(local.gradient(x).to_vector<float>(), std::vector<float>(3, 3.0f));
}

TEST(Lists, MeshesHaveANameAndAnOuterSizeForEachAxisAndAGranuleForEachRank) {
  const auto make = [](const std::vector<std::string>& axes, ints outer, std::vector<std::int64_t> granules) {
    refused("one name and one outer size for each axis", [&](status& err) {
      mesh_options options;
      options.ranks = {0, 1, 2, 3};
      options.outer_shape = outer;
      options.granules = std::move(granules);
      mesh::alone({1, 2}, axes, options, err);
    });
  };
  make({"x"}, {2, 1}, {0, 0, 1, 1});
  make({"x", "y", "z"}, {2, 1}, {0, 0, 1, 1});
  make({"x", "y"}, {2}, {0, 0, 1, 1});
  make({"x", "y"}, {2, 1, 1}, {0, 0, 1, 1});
  make({"x", "y"}, {2, 1}, {0, 0, 1});
  make({"x", "y"}, {2, 1}, {0, 0, 1, 1, 1});
}

// Gives as many tensors as it is told.
struct several {
  std::size_t outputs, gradients;
  std::vector<tensor> forward(const std::vector<tensor>& inputs) const {
    return std::vector<tensor>(outputs, inputs[0] * 1.0);
  }
  std::vector<tensor> backward(const std::vector<tensor>& given) const {
    return std::vector<tensor>(gradients, given[0]);
  }
};

TEST(Lists, CustomOpsGiveAsManyTensorsAsAreWanted) {
  const tensor x = ones({3}).requires_grad(true);
  for (const std::size_t count : {0u, 2u}) {
    refused("1 are wanted", [&](status& err) { apply_custom("several", several{count, 1}, {x}, 1, err); });
    const tensor y = apply_custom("several", several{1, count}, {x}, 1)[0];
    refused("1 are wanted", [&](status& err) { context::local().backward({y.sum()}, {}, err); });
  }
}

}  // namespace
