#include <gtest/gtest.h>

#include <cstring>

#include "spmd/batch.h"

namespace distag::spmd {
namespace {

BatchWord a_batch() {
  BatchWord word;
  word.kind = BatchWord::Kind::kBatch;
  word.form = BatchForm::kMap;
  word.elements = 77;
  word.entries = {
      {"image", Dtype::kFloat32, {8, 3, 2}}, {"a name of 17 byte", Dtype::kInt64, {8}}, {"", Dtype::kBool, {}}};
  return word;
}

Tensor joined(const std::vector<Tensor>& rows) {
  int64_t count = 0;
  for (const Tensor& row : rows) count += row.count();
  Tensor all = Tensor::empty(Dtype::kInt64, {count});
  std::byte* out = all.mutable_data();
  for (const Tensor& row : rows) {
    std::memcpy(out, row.data(), row.byte_size());
    out += row.byte_size();
  }
  return all;
}

TEST(BatchWordsTest, AreReadAsTheyWereWritten) {
  BatchWord failed;
  failed.kind = BatchWord::Kind::kFailed;
  failed.error = Error(Status::kUser, std::string(700, 'x') + "end");
  BatchWord ended;
  ended.kind = BatchWord::Kind::kEnd;
  const auto words = read_words(joined({write_word(a_batch()), write_word(failed), write_word(ended)}), 3);
  ASSERT_EQ(words[0].entries.size(), 3u);
  EXPECT_EQ(words[0].form, BatchForm::kMap);
  EXPECT_EQ(words[0].elements, 77u);
  EXPECT_EQ(words[0].entries[1].key, "a name of 17 byte");
  EXPECT_EQ(words[0].entries[0].shape, (Dims{8, 3, 2}));
  EXPECT_EQ(words[0].entries[2].dtype, Dtype::kBool);
  EXPECT_EQ(words[1].error->status(), Status::kUser);
  EXPECT_EQ(words[1].error->message(), std::string(512, 'x'));
  EXPECT_EQ(words[2].kind, BatchWord::Kind::kEnd);
}

// Whatever number of a word is another one: a batch that can be, or PROTOCOL.
TEST(BatchWordsTest, RefuseWhatIsNone) {
  const Tensor good = write_word(a_batch());
  for (int64_t at = 0; at < good.count(); ++at) {
    for (const int64_t wrong : {int64_t{-1}, int64_t{0}, int64_t{7}, int64_t{1} << 40, INT64_MAX, INT64_MIN}) {
      Tensor bad = good.clone();
      bad.mutable_data_as<int64_t>()[at] = wrong;
      try {
        read_words(bad, 1);
      } catch (const Error& error) {
        EXPECT_TRUE(error.status() == Status::kProtocol || error.status() == Status::kInvalidArgument ||
                    error.status() == Status::kUnsupported)
            << error.message();
      }
    }
  }
  EXPECT_THROW(read_words(good, 2), Error);
  EXPECT_THROW(read_words(joined({good, good}), 1), Error);  // one that speaks for others
  EXPECT_THROW(read_words(Tensor::empty(Dtype::kInt64, {0}), 1), Error);
}

}  // namespace
}  // namespace distag::spmd
