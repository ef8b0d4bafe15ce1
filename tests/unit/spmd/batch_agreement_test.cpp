// The agreement that members make from the words of a batch, and which rows each is asked for.
#include <gtest/gtest.h>

#include "spmd/batch.h"
#include "support/expect.h"
#include "support/tensors.h"
#include "unit/layout/meshes.h"

namespace distag::spmd {
namespace {

using testing::failure_of;
using testing::mesh_of;
using testing::tensor_of;
using testing::values_of;
using Kind = BatchWord::Kind;

BatchWord word_of(Kind kind) {
  BatchWord word;
  word.kind = kind;
  return word;
}

BatchWord batch_of(const Dims& shape, Dtype dtype = Dtype::kFloat32) {
  BatchWord word = word_of(Kind::kBatch);
  word.entries = {{"", dtype, shape}};
  return word;
}

LoaderSettings settings_of(BatchMode mode) {
  LoaderSettings settings;
  settings.mode = mode;
  if (mode == BatchMode::kRows) {
    settings.row_count = 5;
    settings.batch_rows = 5;
    settings.epochs = 1;
  }
  return settings;
}

Agreement agreed(BatchMode mode, const std::vector<BatchWord>& words) {
  const layout::MeshShape mesh = mesh_of({static_cast<int64_t>(words.size())});
  std::vector<std::string> names;
  for (size_t i = 0; i < words.size(); ++i) names.push_back("rank " + std::to_string(i));
  return agree_on(mesh, BatchSpecs(mesh, settings_of(mode)), mode, 7, words, names);
}

TEST(BatchAgreementTest, TheEndOfOneMemberIsTheEndOfAll) {
  const Agreement found = agreed(BatchMode::kGlobal, {batch_of({4}), word_of(Kind::kEnd), batch_of({4})});
  EXPECT_TRUE(found.has_ended);
  EXPECT_FALSE(found.failure);
}

TEST(BatchAgreementTest, AFailureNamesBatchAndMemberAndGoesBeforeAnEnd) {
  BatchWord failed = word_of(Kind::kFailed);
  failed.error = Error(Status::kUser, "no such file");
  const Agreement found = agreed(BatchMode::kGlobal, {word_of(Kind::kEnd), batch_of({4}), failed});
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->message(), "batch 7, the source of rank 2: no such file");
  EXPECT_EQ(found.failure->origin_rank(), 2);
}

TEST(BatchAgreementTest, AMemberThatReleasedItsLoaderIsNamed) {
  const Agreement found = agreed(BatchMode::kGlobal, {batch_of({4}), word_of(Kind::kReleased)});
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->message(), "batch 7: rank 1 has released the loader");
}

TEST(BatchAgreementTest, BatchesThatDifferAreToldWithBoth) {
  const Agreement shapes = agreed(BatchMode::kGlobal, {batch_of({4}), batch_of({4}), batch_of({5})});
  ASSERT_TRUE(shapes.failure);
  EXPECT_NE(shapes.failure->message().find("rank 0 gives float32[4], rank 2 float32[5]"), std::string::npos)
      << shapes.failure->message();
  const Agreement dtypes = agreed(BatchMode::kGlobal, {batch_of({4}), batch_of({4}, Dtype::kInt64)});
  ASSERT_TRUE(dtypes.failure);
  EXPECT_NE(dtypes.failure->message().find("rank 1 int64[4]"), std::string::npos) << dtypes.failure->message();
}

TEST(BatchAgreementTest, ElementsThatDifferAreToldWithBothAndTheRankOfTheFirst) {
  std::vector<BatchWord> words(3, batch_of({4}));
  for (size_t i = 0; i < words.size(); ++i) words[i].elements = i == 0 ? 0 : i;  // the first has none to compare
  const Agreement found = agreed(BatchMode::kGlobal, words);
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->status(), Status::kDiverged);
  EXPECT_EQ(found.failure->message(), "batch 7: rank 1 and rank 2 give other elements for the same rows");
  EXPECT_EQ(found.failure->origin_rank(), 1);
}

TEST(BatchAgreementTest, MembersWithoutRowsTakeShapeAndDtypeFromOthers) {
  const Agreement found = agreed(BatchMode::kRows, {batch_of({2, 3}), batch_of({2, 3}), word_of(Kind::kNothing)});
  ASSERT_FALSE(found.failure);
  ASSERT_EQ(found.entries.size(), 1u);
  EXPECT_EQ(found.entries[0].shape, (Dims{2, 3}));
}

TEST(BatchAgreementTest, PartsOfMembersAreTheBlocksOfTheirSum) {
  const Agreement found = agreed(BatchMode::kLocal, {batch_of({3}), batch_of({3}), batch_of({2})});
  ASSERT_FALSE(found.failure);
  EXPECT_EQ(found.entries[0].shape, (Dims{8}));
  EXPECT_TRUE(agreed(BatchMode::kLocal, {batch_of({3}), batch_of({2}), batch_of({3})}).failure);
}

TEST(BatchRulesTest, EachMemberIsAskedForItsRowsAndGivesJustThese) {
  const layout::MeshShape mesh = mesh_of({4});
  const LoaderSettings settings = settings_of(BatchMode::kRows);
  const BatchRows::Range range{0, 0, 5};
  int64_t next = 0;
  for (int64_t position = 0; position < 4; ++position) {
    const BatchRules rules(mesh, position, settings, false);
    const layout::Range own = rules.own_rows(range);
    EXPECT_EQ(rules.is_asked(range), own.extent > 0);
    if (own.extent == 0) continue;
    EXPECT_EQ(own.offset, next);
    next += own.extent;
    std::vector<double> numbers(static_cast<size_t>(own.extent), static_cast<double>(position));
    const MadeBatch made = rules.take(Value(tensor_of<double>({own.extent}, numbers)), range);
    EXPECT_EQ(made.word.entries[0].shape, (Dims{5}));
    ASSERT_EQ(made.parts.size(), 1u);
    EXPECT_EQ(values_of<double>(made.parts[0]), numbers);
    const Value more(Tensor::empty(Dtype::kFloat64, {own.extent + 1}));
    EXPECT_NE(failure_of([&] { rules.take(more, range); }).find("and was asked for"), std::string::npos);
  }
  EXPECT_EQ(next, 5);
}

TEST(BatchRulesTest, AWholeBatchIsCutForItsMember) {
  const layout::MeshShape mesh = mesh_of({2});
  const Tensor whole = tensor_of<double>({3}, {1, 2, 3});
  const BatchRules first(mesh, 0, settings_of(BatchMode::kGlobal), false);
  const BatchRules second(mesh, 1, settings_of(BatchMode::kGlobal), false);
  EXPECT_EQ(values_of<double>(first.take(Value(whole), {}).parts.at(0)), (std::vector<double>{1, 2}));
  EXPECT_EQ(values_of<double>(second.take(Value(whole), {}).parts.at(0)), (std::vector<double>{3}));
}

// A state is of the batch that comes next, and fits loaders with the same options.
TEST(LoaderStateTest, IsRefusedForOtherOptionsButMoreEpochs) {
  const LoaderSettings settings = settings_of(BatchMode::kRows);
  const Value state = settings.state(1);
  EXPECT_EQ(settings.first_of(state), 1u);
  LoaderSettings longer = settings;
  longer.epochs = 9;
  EXPECT_EQ(longer.first_of(state), 1u);
  LoaderSettings other = settings;
  other.seed = 5;
  other.shuffle = true;
  EXPECT_NE(failure_of([&] { other.first_of(state); }).find("shuffle"), std::string::npos);
}

}  // namespace
}  // namespace distag::spmd
