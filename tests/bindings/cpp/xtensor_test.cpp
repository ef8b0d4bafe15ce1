// Tensors as expressions of xtensor and back: values, memory, lifetimes, refusals.
#include <gtest/gtest.h>

#include <distag/xtensor.hpp>
#include <thread>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

using distag::as_xtensor;
using distag::from_xtensor;
using distag::tensor;

namespace {

tensor counted(std::initializer_list<std::int64_t> shape) {
  return distag::arange(0, 12, 1, distag::dtype::float64).reshape(distag::ints(shape));
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const distag::usage_error& error) {
    EXPECT_EQ(error.code(), distag::errc::invalid_argument);
    return error.what();
  }
  return "no error";
}

// At the end nothing is left.
class Ends : public testing::Environment {
  void TearDown() override {
    EXPECT_EQ(distag::handle_count(), 0u) << distag::handle_report();
    EXPECT_EQ(distag_get_misuse_count(), 0u);
  }
};
const testing::Environment* const ends = testing::AddGlobalTestEnvironment(new Ends);

TEST(AsXtensor, has_the_elements_without_a_copy) {
  const tensor x = counted({3, 4});
  const auto array = as_xtensor<double>(x);
  EXPECT_EQ(array.dimension(), 2u);
  EXPECT_EQ(array(2, 1), 9);
  EXPECT_EQ(&array(0, 0), distag_tensor_get_data(x.get()));
  EXPECT_EQ(xt::sum(array)(), 66);
  EXPECT_EQ(xt::xarray<double>(xt::sum(array, {0})), (xt::xarray<double>{12, 15, 18, 21}));
  static_assert(std::is_const<std::remove_reference_t<decltype(as_xtensor<double>(x)(0))>>::value, "read-only");
}

TEST(AsXtensor, reads_strided_tensors_where_they_are) {
  const tensor x = counted({3, 4});
  const auto turned = as_xtensor<double, 2>(x.transpose(0, 1));
  EXPECT_EQ(&turned(0, 0), distag_tensor_get_data(x.get()));
  EXPECT_EQ(turned.shape(), (std::array<std::size_t, 2>{4, 3}));
  EXPECT_EQ((xt::xtensor<double, 2>(turned + 1)),
            (xt::xtensor<double, 2>{{1, 5, 9}, {2, 6, 10}, {3, 7, 11}, {4, 8, 12}}));
  const auto column = as_xtensor<double>(x.slice(1, 3, 4));  // [3, 1]: steps over a dim of size 1 stay where they are
  EXPECT_EQ((xt::xarray<double>(column * xt::xarray<double>{1, 2})), (xt::xarray<double>{{3, 6}, {7, 14}, {11, 22}}));
  const auto repeated = as_xtensor<double>(x.slice(0, 0, 1).expand({2, 4}));
  EXPECT_EQ((xt::xarray<double>(repeated)), (xt::xarray<double>{{0, 1, 2, 3}, {0, 1, 2, 3}}));
  const auto every_second = as_xtensor<double>(counted({12}).slice(0, 1, 12, 2));
  EXPECT_EQ((xt::xarray<double>(every_second)), (xt::xarray<double>{1, 3, 5, 7, 9, 11}));
}

TEST(AsXtensor, keeps_the_values_of_its_moment) {
  tensor x = tensor::of({1.0f, 2.0f});
  const auto before = as_xtensor<float>(x);
  x.write({5.0f, 6.0f});
  const auto after = as_xtensor<float, 1>(x);
  x.close();
  EXPECT_EQ(before(1), 2);
  EXPECT_EQ(after(1), 6);
  auto copy = before;
  EXPECT_EQ(copy(0), 1);
}

TEST(AsXtensor, takes_any_dtype_and_any_shape) {
  EXPECT_EQ(as_xtensor<std::int64_t>(tensor::of({7L, 8L}))(1), 8);
  EXPECT_TRUE(as_xtensor<bool>(tensor::of({false, true}))(1));
  const auto number = as_xtensor<float>(tensor::of(3.5f));
  EXPECT_EQ(number.dimension(), 0u);
  EXPECT_EQ(number(), 3.5f);
  EXPECT_EQ((as_xtensor<float, 0>(tensor::of(3.5f))()), 3.5f);
  const auto empty = as_xtensor<float, 2>(distag::zeros({0, 3}));
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_EQ(empty.shape(1), 3u);
}

TEST(AsXtensor, refuses_another_dtype_or_rank_by_both_names) {
  const tensor x = counted({3, 4});
  EXPECT_EQ(message_of([&] { as_xtensor<float>(x); }), "as_xtensor: the tensor is float64, not float32: cast it first");
  EXPECT_EQ(message_of([&] { as_xtensor<bool, 2>(x); }), "as_xtensor: the tensor is float64, not bool: cast it first");
  EXPECT_EQ(message_of([&] { as_xtensor<double, 3>(x); }),
            "as_xtensor: the tensor has 2 dims, not 3: reshape it first");
  EXPECT_NE(message_of([] { as_xtensor<double>(tensor()); }), "no error");
  distag::status err;
  EXPECT_EQ((as_xtensor<double, 3>(x, err).size()), 0u);
  EXPECT_EQ(err.code(), distag::errc::invalid_argument);
  EXPECT_EQ(as_xtensor<double>(x, err).size(), 0u) << "an earlier failure passes through";
}

TEST(AsXtensor, has_no_elements_where_none_are_here) {
  std::vector<distag::worker> workers;
  std::vector<distag::future<void>> starts;
  for (int rank = 0; rank < 2; ++rank) {
    distag::worker_options options;
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = "inproc://xtensor";
    workers.emplace_back(options);
    starts.push_back(workers.back().start_async());
  }
  distag::wait_all(starts);
  const auto look = [&workers](std::size_t rank) {
    const distag::mesh mesh(workers[rank], {2}, {"x"});
    distag::status err;
    EXPECT_EQ(as_xtensor<float>(mesh.shard(distag::ones({4}), "('x',)"), err).size(), 0u);
    EXPECT_EQ(err.code(), distag::errc::invalid_state);
  };
  std::thread other(look, 1);
  look(0);
  other.join();
  EXPECT_EQ(as_xtensor<float>(tensor::of(std::vector<float>(), {0, 3})).size(), 0u);
}

TEST(FromXtensor, takes_a_container_without_a_copy) {
  xt::xarray<float> array = xt::ones<float>({2, 3});
  const float* memory = array.data();
  const tensor x = from_xtensor(std::move(array));
  EXPECT_EQ(distag_tensor_get_data(x.get()), memory);
  EXPECT_TRUE(x.is_borrowed());
  EXPECT_EQ(x.shape(), distag::ints({2, 3}));
  EXPECT_EQ(x.sum().item(), 6);
}

TEST(FromXtensor, keeps_the_order_of_a_container) {
  xt::xtensor<double, 2, xt::layout_type::column_major> columns{{1, 2, 3}, {4, 5, 6}};
  const double* memory = columns.data();
  const tensor x = from_xtensor(std::move(columns));
  EXPECT_EQ(distag_tensor_get_data(x.get()), memory);
  EXPECT_EQ(x.strides(), distag::ints({1, 2}));
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  xt::xtensor<float, 2> line{{1, 2}};
  EXPECT_EQ(from_xtensor(std::move(line)).add(tensor::of({1.0f, 1.0f}, {2, 1})).to_vector<float>(),
            (std::vector<float>{2, 3, 2, 3}));
}

TEST(FromXtensor, evaluates_expressions_and_copies_what_stays_with_the_caller) {
  xt::xarray<double> kept{1, 2, 3};
  const tensor copied = from_xtensor(kept);
  const xt::xarray<double> constant{4, 5};
  const tensor doubled = from_xtensor(2 * kept);
  kept(0) = 9;
  EXPECT_EQ(copied.to_vector<double>(), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(doubled.to_vector<double>(), (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(from_xtensor(std::move(constant)).to_vector<double>(), (std::vector<double>{4, 5}));
  EXPECT_EQ(from_xtensor(kept > 2.5).dtype(), distag::dtype::bool_);
  const tensor part = from_xtensor(xt::view(kept, xt::range(1, 3)));
  EXPECT_EQ(part.to_vector<double>(), (std::vector<double>{2, 3}));
  EXPECT_EQ(from_xtensor(xt::xarray<float>(3.0f)).ndim(), 0u);
  EXPECT_EQ(from_xtensor(xt::xarray<float>::from_shape({0, 2})).shape(), distag::ints({0, 2}));
}

// An adaptor does not own the memory that it shows: its numbers are copied into memory of the answer.
TEST(FromXtensor, reads_what_as_xtensor_gives) {
  const tensor x = counted({3, 4}).requires_grad(true);
  const tensor squared = from_xtensor(xt::square(as_xtensor<double>(x.transpose(0, 1))));
  EXPECT_EQ(squared.to_vector<double>(), x.square().transpose(0, 1).to_vector<double>());
  EXPECT_FALSE(squared.has_history());
  EXPECT_NE(distag_tensor_get_data(from_xtensor(as_xtensor<double>(x)).get()), distag_tensor_get_data(x.get()));
}

}  // namespace
