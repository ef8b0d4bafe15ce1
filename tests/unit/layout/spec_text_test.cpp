#include "layout/spec_text.h"

#include <gtest/gtest.h>

#include "meshes.h"
#include "support/expect.h"

namespace distag::layout {
namespace {

using testing::failure_of;
using testing::mesh_of;
using testing::mesh_sizes;
using testing::Random;
using testing::random_spec;

std::string canonical(const MeshShape& mesh, const char* text, size_t rank) {
  return print_spec(mesh, parse_spec(mesh, text, rank));
}

std::string failure(const MeshShape& mesh, const char* text, size_t rank) {
  return failure_of([&] { parse_spec(mesh, text, rank); });
}

TEST(SpecText, TupleIsPrintedCanonically) {
  const MeshShape mesh = mesh_of({2, 2, 2, 2});  // x, y, z, u
  EXPECT_EQ(canonical(mesh, "('x', None)", 2), "('x', None)");
  EXPECT_EQ(canonical(mesh, " ( x ,None, ( \"y\" , 2 , ) , ) sum ( u ) ", 3), "('x', None, ('y', 'z')) sum('u')");
  EXPECT_EQ(canonical(mesh, "(x)", 1), "('x',)");
  EXPECT_EQ(canonical(mesh, "((0,))", 1), "('x',)");
  EXPECT_EQ(canonical(mesh, "()", 0), "()");
  EXPECT_EQ(canonical(mesh, "() sum(u, x)", 0), "() sum('x', 'u')");
  EXPECT_EQ(canonical(mesh, "(None)", 1), "(None,)");
}

TEST(SpecText, AnAxisMayBeginLikeAWord) {
  MeshRequest request;
  request.axis_names = {"None1", "sums"};
  request.shape = {2, 1};
  request.ranks = {0, 1};
  const MeshShape mesh = MeshShape::make(request);
  EXPECT_EQ(canonical(mesh, "(None1) sum(sums)", 1), "('None1',) sum('sums')");
}

TEST(SpecText, RefusesATupleNamingPlaceAndReason) {
  const MeshShape mesh = mesh_of({2, 2});
  EXPECT_EQ(failure(mesh, "('x', None)", 3),
            "INVALID_ARGUMENT: spec \"('x', None)\", at 11: 2 items for a tensor of 3 dims: give each dim one");
  EXPECT_EQ(failure(mesh, "('q', None)", 2),
            "INVALID_ARGUMENT: spec \"('q', None)\", at 2: mesh \"mesh\" has no axis q: it has x, y");
  EXPECT_EQ(failure(mesh, "('x', 'x')", 2),
            "INVALID_ARGUMENT: spec \"('x', 'x')\", at 7: axis x is there twice: an axis has one place");
  EXPECT_EQ(failure(mesh, "(x, None) sum(0)", 2),
            "INVALID_ARGUMENT: spec \"(x, None) sum(0)\", at 14: axis 0 is there twice: an axis has one place");
  EXPECT_EQ(failure(mesh, "(-1, None)", 2),
            "INVALID_ARGUMENT: spec \"(-1, None)\", at 1: axes are numbered from 0, not from the end");
  EXPECT_EQ(
      failure(mesh, "((x, (y)), None)", 2),
      "INVALID_ARGUMENT: spec \"((x, (y)), None)\", at 5: an item is None, an axis or one list of axes: lists are "
      "not nested deeper");
  EXPECT_EQ(failure(mesh, "(x, None) y", 2),
            "INVALID_ARGUMENT: spec \"(x, None) y\", at 10: there is text behind the end: remove it");
  for (const char* text : {"", "(", "(x", "(x,", "('x, None)", "(x None)", "(,)", "((), None)", "(x, None) sum()",
                           "(x, None) sum", "(2, None)", "(99999999999999999999, None)", "(x, None))", "(x; None)"}) {
    EXPECT_EQ(testing::status_of([&] { parse_spec(mesh, text, 2); }), Status::kInvalidArgument) << text;
  }
}

TEST(SpecText, PlacementsAreThoseOfDTensor) {
  const MeshShape mesh = mesh_of({2, 3, 2});
  auto printed = [&mesh](const char* text) {
    return print_spec(mesh, parse_spec(mesh, text, 2), SpecForm::kPlacements);
  };
  EXPECT_EQ(canonical(mesh, "S(0), R, P", 2), "('x', None) sum('z')");
  EXPECT_EQ(canonical(mesh, "S(-1),S(1),P(sum)", 2), "(None, ('x', 'y')) sum('z')");
  EXPECT_EQ(canonical(mesh, "Shard(0), Replicate(), Partial(sum)", 2), "('x', None) sum('z')");
  EXPECT_EQ(printed("(('x', 'y'), None)"), "S(0), S(0), R");
  EXPECT_EQ(printed("(('y', 'x'), None) sum(z)"), "S(0)[1], S(0)[0], P(sum)");
  EXPECT_EQ(canonical(mesh, "S(0)[1], S(0)[0], R", 2), "(('y', 'x'), None)");
  EXPECT_EQ(failure(mesh, "S(0), R, P(max)", 2),
            "UNSUPPORTED: spec \"S(0), R, P(max)\", at 11: reduction max: a partial tensor is a sum");
  EXPECT_EQ(failure(mesh, "S(0), R", 2),
            "INVALID_ARGUMENT: spec \"S(0), R\", at 7: 2 items for mesh \"mesh\" of 3 axes: give each axis one");
  for (const char* text : {"S(2), R, R", "S(-3), R, R", "S, R, R", "S(0)[0], S(0)[0], R", "S(0)[1], S(0), R",
                           "S(0), R, R, R", "x, y, z", "R R R", "S(0)[-1], R, R"}) {
    EXPECT_EQ(testing::status_of([&] { parse_spec(mesh, text, 2); }), Status::kInvalidArgument) << text;
  }
}

// As Python prints them, and as people paste them.
TEST(SpecText, PlacementsMayStandInBracketsAndNameTheirArguments) {
  const MeshShape mesh = mesh_of({2, 3});
  EXPECT_EQ(canonical(mesh, "[Shard(0), Replicate()]", 2), "('x', None)");
  EXPECT_EQ(canonical(mesh, "(Shard(dim=0), Replicate())", 2), "('x', None)");
  EXPECT_EQ(canonical(mesh, "( Shard( dim = -1 ) , Partial(sum), )", 2), "(None, 'x') sum('y')");
  EXPECT_EQ(canonical(mesh, "[Partial('sum'), _Partial()]", 2), "(None, None) sum('x', 'y')");
  EXPECT_EQ(canonical(mesh, "(S(0), S(1))", 2), "('x', 'y')");
  EXPECT_EQ(canonical(mesh, "[R, P(sum)]", 1), "(None,) sum('y')");
  EXPECT_EQ(canonical(mesh, "[{\"x\"}, {}]", 2), "('x', None)");
  EXPECT_EQ(failure(mesh, "[Shard(0)]", 2),
            "INVALID_ARGUMENT: spec \"[Shard(0)]\", at 9: 1 items for mesh \"mesh\" of 2 axes: give each axis one");
  EXPECT_EQ(failure(mesh, "(Partial('avg'), R)", 2),
            "UNSUPPORTED: spec \"(Partial('avg'), R)\", at 10: reduction avg: a partial tensor is a sum");
  for (const char* text : {"[Shard(0), R", "(Shard(0), R]", "[Shard(0), R)", "[]", "[Shard(0),, R]", "[S(0), R] x",
                           "(Shard(place=0), R)", "[Partial('sum), R]", "[S(0), R, R]"}) {
    EXPECT_EQ(testing::status_of([&] { parse_spec(mesh, text, 2); }), Status::kInvalidArgument) << text;
  }
}

TEST(SpecText, PlacementsOfAxesOfSizeOneMayBeLeftOut) {
  const MeshShape mesh = mesh_of({4, 1});
  EXPECT_EQ(canonical(mesh, "S(0)", 2), "('x', None)");
  EXPECT_EQ(canonical(mesh, "[Shard(1)]", 2), "(None, 'x')");
  EXPECT_EQ(canonical(mesh_of({1, 1, 1}), "R", 1), "(None,)");
  for (const Dims& sizes : {Dims{1, 4}, Dims{4, 1, 2}}) {
    EXPECT_EQ(testing::status_of([&] { parse_spec(mesh_of(sizes), "S(0)", 2); }), Status::kInvalidArgument);
  }
}

TEST(SpecText, PartitionSpecsOfJaxMayHaveTheirName) {
  const MeshShape mesh = mesh_of({2, 3});
  EXPECT_EQ(canonical(mesh, "P('x', None)", 2), "('x', None)");
  EXPECT_EQ(canonical(mesh, "PartitionSpec(('x', 'y'), None)", 2), "(('x', 'y'), None)");
  EXPECT_EQ(canonical(mesh, "P(None, x)", 2), "(None, 'x')");
  EXPECT_EQ(canonical(mesh, "P(y,)", 1), "('y',)");
  EXPECT_EQ(canonical(mesh, "P()", 0), "()");
  EXPECT_EQ(canonical(mesh, "P(sum), S(0)", 1), "('y',) sum('x')");
  EXPECT_EQ(canonical(mesh, "P, S(0)", 1), "('y',) sum('x')");
  for (const char* text : {"P('x')", "P", "PartitionSpec", "P('q', None)", "PartitionSpec(sum, None)"}) {
    EXPECT_EQ(testing::status_of([&] { parse_spec(mesh, text, 2); }), Status::kInvalidArgument) << text;
  }
}

// A bracket tells placements from axes of that name.
TEST(SpecText, AxesMayHaveTheNamesOfPlacements) {
  layout::MeshRequest request;
  request.shape = {2, 3};
  request.axis_names = {"S", "P"};
  request.ranks = {0, 1, 2, 3, 4, 5};
  const MeshShape mesh = MeshShape::make(request);
  EXPECT_EQ(canonical(mesh, "(S, P)", 2), "('S', 'P')");
  EXPECT_EQ(canonical(mesh, "(S(0), P(sum))", 2), "('S', None) sum('P')");
  EXPECT_EQ(canonical(mesh, "P(S, None)", 2), "('S', None)");
}

TEST(SpecText, HloIsThatOfXla) {
  const MeshShape mesh = mesh_of({2, 3});
  auto hlo = [&mesh](const char* text, size_t rank) {
    return print_spec(mesh, parse_spec(mesh, text, rank), SpecForm::kHlo);
  };
  auto iota = [&mesh](const char* text, size_t rank) {
    return print_spec(mesh, parse_spec(mesh, text, rank), SpecForm::kHloIota);
  };
  EXPECT_EQ(hlo("(x, y)", 2), "{devices=[2,3]0,1,2,3,4,5}");
  EXPECT_EQ(hlo("(y, None)", 2), "{devices=[3,1,2]0,3,1,4,2,5 last_tile_dim_replicate}");
  EXPECT_EQ(hlo("((y, x),)", 1), "{devices=[6]0,3,1,4,2,5}");
  EXPECT_EQ(hlo("(None, None)", 2), "{replicated}");
  EXPECT_EQ(hlo("(x) sum(y)", 1), "{devices=[2,3]0,1,2,3,4,5 last_tile_dims={unreduced}}");
  EXPECT_EQ(hlo("(None) sum(y)", 1), "{devices=[1,2,3]0,1,2,3,4,5 last_tile_dims={replicated, unreduced}}");
  EXPECT_EQ(iota("(x, y)", 2), "{devices=[2,3]<=[6]}");
  EXPECT_EQ(iota("(y, None)", 2), "{devices=[3,1,2]<=[2,3]T(1,0) last_tile_dim_replicate}");
  EXPECT_EQ(canonical(mesh, "{devices=[3,1,2]<=[2,3]T(1,0) last_tile_dim_replicate}", 2), "('y', None)");
  EXPECT_EQ(canonical(mesh, "{devices=[3,1,2]3,0,4,1,5,2 last_tile_dim_replicate}", 2), "('y', None)");
  EXPECT_EQ(canonical(mesh, "{ devices = [ 3 , 2 ] 0,3,1,4,2,5 last_tile_dims = { unreduced } }", 1),
            "('y',) sum('x')");
  EXPECT_EQ(canonical(mesh, "{replicated}", 2), "(None, None)");
  EXPECT_EQ(print_spec(mesh_of({2}), parse_spec(mesh_of({2}), "() sum(x)", 0), SpecForm::kHlo),
            "{devices=[2]0,1 last_tile_dims={unreduced}}");
  EXPECT_EQ(
      failure(mesh, "{devices=[2,3]0,1,2,3,5,4}", 2),
      "INVALID_ARGUMENT: spec \"{devices=[2,3]0,1,2,3,5,4}\", at 1: no spec of mesh \"mesh\" of shape [2, 3] gives "
      "this array of devices");
  EXPECT_EQ(testing::status_of([&] { parse_spec(mesh, "{maximal device=0}", 2); }), Status::kUnsupported);
  for (const char* text :
       {"{", "{}", "{devices=[2,2]0,1,2,3}", "{devices=[6]0,1,2,3,4,5}", "{devices=[2,3]0,1,2,3,4,4}",
        "{devices=[2,3]0,1,2,3,4,6}", "{devices=[2,3]0,1,2,3,4}", "{devices=[2,3]<=[7]}",
        "{devices=[2,3]<=[2,3]T(0,0)}", "{devices=[2,3]<=[6]T(1)}", "{{replicated},{replicated}}",
        "{devices=[-2,-3]<=[6]}", "{devices=[2,3]0,1,2,3,4,5,6}", "{devices=[2,3]0,1,2,3,4,5} x",
        "{devices=[4611686018427387904,4]<=[6]}", "{devices=[0,3]}"}) {
    EXPECT_EQ(testing::status_of([&] { parse_spec(mesh, text, 2); }), Status::kInvalidArgument) << text;
  }
}

TEST(SpecText, HloOfOneDeviceMayHaveNoSizesAndThenNoOrder) {
  const MeshShape mesh = mesh_of({1});
  EXPECT_EQ(canonical(mesh, "{devices=[1]<=[]T()}", 1), "(None,)");
  EXPECT_EQ(failure(mesh, "{devices=[1]<=[]T(0)}", 1),
            "INVALID_ARGUMENT: spec \"{devices=[1]<=[]T(0)}\", at 17: the order of T does not have each number below 0 "
            "once");
}

TEST(SpecText, HloNamesRanks) {
  MeshRequest request;
  request.shape = {2, 2};
  request.ranks = {7, 3, 5, 1};
  const MeshShape mesh = MeshShape::make(request);
  EXPECT_EQ(print_spec(mesh, parse_spec(mesh, "(0, 1)", 2), SpecForm::kHlo), "{devices=[2,2]7,3,5,1}");
  // A group of replicas is sorted.
  EXPECT_EQ(print_spec(mesh, parse_spec(mesh, "(0,)", 1), SpecForm::kHlo),
            "{devices=[2,2]3,7,1,5 last_tile_dim_replicate}");
  EXPECT_EQ(canonical(mesh, "{devices=[2,2]3,7,1,5 last_tile_dim_replicate}", 1), "('axis0',)");
  EXPECT_EQ(testing::status_of([&] { print_spec(mesh, parse_spec(mesh, "(0,)", 1), SpecForm::kHloIota); }),
            Status::kUnsupported);
}

TEST(SpecText, ShardyNamesItsMesh) {
  const MeshShape mesh = mesh_of({2, 2, 2, 2});
  EXPECT_EQ(print_spec(mesh, parse_spec(mesh, "(x, (z, y)) sum(u)", 2), SpecForm::kShardy),
            "sharding<@mesh, [{\"x\"}, {\"z\", \"y\"}], unreduced={\"u\"}>");
  EXPECT_EQ(canonical(mesh, "sharding<@mesh, [{\"x\"}, {\"z\", \"y\"}], replicated={\"u\"}>", 2), "('x', ('z', 'y'))");
  EXPECT_EQ(canonical(mesh, "[{}, {\"y\"}]", 2), "(None, 'y')");
  EXPECT_EQ(
      failure(mesh, "sharding<@other, [{}]>", 1),
      "INVALID_ARGUMENT: spec \"sharding<@other, [{}]>\", at 10: mesh @other is meant, but this is mesh \"mesh\"");
  for (const char* text : {"[{\"x\", ?}, {}]", "[{?}, {}]", "[{\"x\"}p1, {}]", "[{\"x\":(1)2}, {}]"}) {
    EXPECT_EQ(testing::status_of([&] { parse_spec(mesh, text, 2); }), Status::kUnsupported) << text;
  }
  for (const char* text : {"[", "[{}]", "[{}, {}, {}]", "[{\"x\"}, {\"x\"}]", "sharding", "sharding<", "[{} {}]",
                           "sharding<@mesh, [{}, {}]", "sharding<@mesh, [{}, {}], replicated={\"q\"}>"}) {
    EXPECT_EQ(testing::status_of([&] { parse_spec(mesh, text, 2); }), Status::kInvalidArgument) << text;
  }
}

// In every form, of every mesh: the HLO forms leave out axes of size 1.
TEST(SpecText, ComesBackEqual) {
  Random random(1);
  for (const Dims& sizes : mesh_sizes()) {
    const MeshShape mesh = mesh_of(sizes);
    for (int i = 0; i < 500; ++i) {
      const size_t rank = testing::below(random, 4);
      const Spec spec = random_spec(mesh, rank, true, random);
      for (SpecForm form :
           {SpecForm::kTuple, SpecForm::kPlacements, SpecForm::kHlo, SpecForm::kHloIota, SpecForm::kShardy}) {
        const std::string text = print_spec(mesh, spec, form);
        SCOPED_TRACE(text);
        const Spec back = parse_spec(mesh, text, rank);
        const bool is_hlo = form == SpecForm::kHlo || form == SpecForm::kHloIota;
        ASSERT_TRUE(is_hlo ? back == without_idle_axes(mesh, spec) : back == spec) << print_spec(mesh, spec);
      }
    }
  }
}

// Texts with a character changed, added or left out: a spec or INVALID_ARGUMENT or UNSUPPORTED, and nothing else.
TEST(SpecText, DamagedTextsAreSpecsOrErrors) {
  Random random(2);
  const MeshShape mesh = mesh_of({2, 3});
  const std::string alphabet = "(){}[]<>=,'\"?:@;-0123456789xyzNoneRSPsum TZ\n\x7f\xff";
  for (int i = 0; i < 20000; ++i) {
    const Spec spec = random_spec(mesh, 2, true, random);
    std::string text = print_spec(mesh, spec, static_cast<SpecForm>(1 + testing::below(random, 5)));
    for (size_t k = 0; k <= testing::below(random, 3); ++k) {
      const size_t place = testing::below(random, text.size());
      const char c = alphabet[testing::below(random, alphabet.size())];
      const size_t kind = testing::below(random, 3);
      if (kind == 0) text[place] = c;
      if (kind == 1) text.insert(place, 1, c);
      if (kind == 2 && text.size() > 1) text.erase(place, 1);
    }
    try {
      const Spec read = parse_spec(mesh, text, 2);
      ASSERT_TRUE(parse_spec(mesh, print_spec(mesh, read), 2) == read) << text;
    } catch (const Error& error) {
      ASSERT_TRUE(error.status() == Status::kInvalidArgument || error.status() == Status::kUnsupported) << error.what();
      for (char c : error.message()) ASSERT_TRUE(c >= ' ' && c <= '~') << text;
    }
  }
}

TEST(SpecText, AxesAreAnItem) {
  const MeshShape mesh = mesh_of({2, 2});
  EXPECT_EQ(parse_axes(mesh, "('y', 'x')"), (Axes{1, 0}));
  EXPECT_EQ(parse_axes(mesh, "x"), (Axes{0}));
  EXPECT_NE(failure_of([&] { parse_axes(mesh, "None"); }), "no failure");
}

}  // namespace
}  // namespace distag::layout
