#include "layout/picture.h"

#include <gtest/gtest.h>

#include "layout/spec_text.h"
#include "meshes.h"
#include "support/expect.h"

namespace distag::layout {
namespace {

using testing::failure_of;
using testing::mesh_of;

std::string text_of(const MeshShape* mesh, const char* spec, const std::optional<Dims>& shape,
                    PictureStyle style = {}) {
  return draw(mesh, spec, shape, shape ? shape->size() : 0, style);
}

std::string json_of(const MeshShape* mesh, const char* spec, const std::optional<Dims>& shape) {
  PictureStyle style;
  style.format = PictureFormat::kJson;
  return draw(mesh, spec, shape, shape ? shape->size() : 0, style);
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  size_t width = 0;
  for (const char c : text) {
    if (c == '\n') {
      widest = std::max(widest, width);
      width = 0;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
      ++width;
    }
  }
  return widest;
}

TEST(Picture, ScalarAndRepeatedAreOneCell) {
  const MeshShape mesh = mesh_of({2, 2});
  const std::string one = "{replicated}\n┌──────────────────┐\n│ CPU [0, 1, 2, 3] │\n└──────────────────┘\n";
  EXPECT_EQ(text_of(&mesh, "()", std::nullopt), one);
  EXPECT_EQ(text_of(&mesh, "(None, None)", std::nullopt), one);
}

TEST(Picture, OneDimIsARowWhoseCellsAreInProportion) {
  const MeshShape mesh = mesh_of({3});
  EXPECT_EQ(text_of(&mesh, "('x',)", Dims{5}),
            "{devices=[3]0,1,2}\n"
            "┌──────────────┬──────────────┬───────┐\n"
            "│    CPU 0     │    CPU 1     │ CPU 2 │\n"
            "│     0:2      │     2:4      │  4:5  │\n"
            "└──────────────┴──────────────┴───────┘\n");
}

TEST(Picture, RowsAreInProportionToo) {
  const MeshShape mesh = mesh_of({2});
  const std::string text = text_of(&mesh, "('x', None)", Dims{3, 1});
  EXPECT_EQ(text,
            "{devices=[2,1]0,1}\n"
            "┌──────────┐\n"
            "│          │\n"
            "│  CPU 0   │\n"
            "│ 0:2, 0:1 │\n"
            "│          │\n"
            "├──────────┤\n"
            "│  CPU 1   │\n"
            "│ 2:3, 0:1 │\n"
            "└──────────┘\n");
}

TEST(Picture, EmptyBoxesAreLeftOut) {
  const MeshShape mesh = mesh_of({4});
  EXPECT_EQ(json_of(&mesh, "('x',)", Dims{5}),
            R"({"boxes":[{"offset":[0],"extent":[2],"members":[0]},{"offset":[2],"extent":[2],"members":[1]},)"
            R"({"offset":[4],"extent":[1],"members":[2]}]})");
  EXPECT_EQ(json_of(&mesh, "('x',)", Dims{0}), R"({"boxes":[]})");
  EXPECT_EQ(text_of(&mesh, "('x',)", Dims{0}), "{devices=[4]0,1,2,3}\nno elements\n");
}

TEST(Picture, APartialTensorIsMarked) {
  const MeshShape mesh = mesh_of({2, 2});
  EXPECT_EQ(text_of(&mesh, "('x',) sum('y')", std::nullopt),
            "{devices=[2,2]0,1,2,3 last_tile_dims={unreduced}}\n"
            "┌──────────────┬──────────────┐\n"
            "│ + CPU [0, 1] │ + CPU [2, 3] │\n"
            "└──────────────┴──────────────┘\n"
            "+: a part of the sum over y\n");
}

TEST(Picture, DimsThatAreNotDrawnAreNamed) {
  const MeshShape mesh = mesh_of({2, 2});
  PictureStyle style;
  style.row_dim = 2;
  style.column_dim = 0;
  EXPECT_EQ(text_of(&mesh, "('x', None, 'y')", std::nullopt, style),
            "{devices=[2,1,2]0,1,2,3}\n"
            "┌───────┬───────┐\n"
            "│ CPU 0 │ CPU 2 │\n"
            "├───────┼───────┤\n"
            "│ CPU 1 │ CPU 3 │\n"
            "└───────┴───────┘\n"
            "dim 1: whole\n");
  EXPECT_EQ(text_of(&mesh, "('x', None, 'y')", std::nullopt),
            "{devices=[2,1,2]0,1,2,3}\n"
            "┌────────────┐\n"
            "│ CPU [0, 1] │\n"
            "├────────────┤\n"
            "│ CPU [2, 3] │\n"
            "└────────────┘\n"
            "dim 2: in 2 blocks\n");
}

TEST(Picture, NothingIsWiderThanAsked) {
  const MeshShape mesh = mesh_of({64});
  PictureStyle style;
  for (const size_t width : {20u, 40u, 80u, 133u}) {
    style.width = width;
    for (const int64_t size : {64, 6400, 100000}) {
      const std::string text = text_of(&mesh, "('x', None)", Dims{size, 3}, style);
      EXPECT_LE(widest_line(text), width);
      EXPECT_NE(text.find("..."), std::string::npos);  // of the title, which is longer
    }
    EXPECT_LE(widest_line(text_of(&mesh, "(None, None)", Dims{4, 3}, style)), width);
  }
}

TEST(Picture, ColoursAreEscapeCodesAroundTheSameText) {
  const MeshShape mesh = mesh_of({2});
  PictureStyle style;
  style.has_color = true;
  std::string text = text_of(&mesh, "('x',)", std::nullopt, style);
  EXPECT_NE(text.find("\x1b[38;5;16;48;5;153m CPU 0 \x1b[0m│\x1b[38;5;16;48;5;223m CPU 1 \x1b[0m│"), std::string::npos)
      << text;
  for (size_t at = text.find('\x1b'); at != std::string::npos; at = text.find('\x1b')) {
    text.erase(at, text.find('m', at) + 1 - at);
  }
  EXPECT_EQ(text, text_of(&mesh, "('x',)", std::nullopt));
}

TEST(Picture, WithoutAMeshTheTextNamesTheDevices) {
  EXPECT_EQ(json_of(nullptr, "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}", std::nullopt),
            R"({"boxes":[{"offset":[0,0],"extent":[1,1],"members":[0,1]},{"offset":[1,0],"extent":[1,1],)"
            R"("members":[2,3]}]})");
  EXPECT_EQ(json_of(nullptr, "{devices=[2,2]<=[2,2]T(1,0)}", Dims{4, 3}),
            R"({"boxes":[{"offset":[0,0],"extent":[2,2],"members":[0]},{"offset":[0,2],"extent":[2,1],"members":[2]},)"
            R"({"offset":[2,0],"extent":[2,2],"members":[1]},{"offset":[2,2],"extent":[2,1],"members":[3]}]})");
  EXPECT_EQ(json_of(nullptr, "{devices=[2]7,1000}", std::nullopt),
            R"({"boxes":[{"offset":[0],"extent":[1],"members":[7]},{"offset":[1],"extent":[1],"members":[1000]}]})");
  EXPECT_EQ(json_of(nullptr, "{maximal device=3}", Dims{2}),
            R"({"boxes":[{"offset":[0],"extent":[2],"members":[3]}]})");
  EXPECT_EQ(text_of(nullptr, "{replicated}", Dims{2}),
            "{replicated}\n┌───────────┐\n│ CPU (all) │\n│    0:2    │\n└───────────┘\n");
}

TEST(Picture, RefusesTextsThatAreNone) {
  const MeshShape mesh = mesh_of({2, 2});
  const auto refused = [&](const MeshShape* on, const char* spec, std::optional<Dims> shape) {
    return failure_of([&] { text_of(on, spec, shape); });
  };
  EXPECT_NE(refused(nullptr, "('x', None)", std::nullopt).find("HLO"), std::string::npos);
  EXPECT_NE(refused(nullptr, "{devices=[2,2]0,1,2}", std::nullopt).find("3 devices"), std::string::npos);
  EXPECT_NE(refused(nullptr, "{devices=[2]0,0}", std::nullopt).find("rank 0 is there twice"), std::string::npos);
  EXPECT_NE(refused(nullptr, "{devices=[2]0,-1}", std::nullopt).find("device -1"), std::string::npos);
  EXPECT_NE(refused(nullptr, "{devices=[100000]0}", std::nullopt).find("4096"), std::string::npos);
  EXPECT_NE(refused(nullptr, "{devices=[2]0,1} x", std::nullopt).find("behind the end"), std::string::npos);
  EXPECT_NE(refused(nullptr, "{devices=[]0}", std::nullopt), "");
  EXPECT_NE(refused(nullptr, "{devices=[2,2]0,1,2,3}", Dims{4}).find("2 dims"), std::string::npos);
  EXPECT_NE(refused(&mesh, "('x', 'x')", std::nullopt).find("twice"), std::string::npos);
  EXPECT_NE(refused(&mesh, "('x',)", Dims{2, 2}).find("1 items"), std::string::npos);
}

// A character for each column, and a border between them, is the least: there is no room for all.
// Characters of the widest line.
std::ptrdiff_t width_of(const std::string& picture) {
  std::ptrdiff_t widest = 0;
  for (size_t begin = 0, end; begin < picture.size(); begin = end + 1) {
    end = picture.find('\n', begin);
    const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
    widest =
        std::max<std::ptrdiff_t>(widest, std::count_if(picture.begin() + static_cast<std::ptrdiff_t>(begin),
                                                       picture.begin() + static_cast<std::ptrdiff_t>(end), starts));
  }
  return widest;
}

TEST(Picture, IsNeverWiderThanItsWidth) {
  const MeshShape mesh = mesh_of({16});
  for (const size_t width : {3u, 4u, 19u, 20u, 32u, 33u, 34u, 80u}) {
    PictureStyle style;
    style.width = width;
    const std::string picture = draw(&mesh, "(None, 'x')", Dims{2, 64}, 2, style);
    EXPECT_LE(width_of(picture), static_cast<std::ptrdiff_t>(width)) << picture;
    const bool is_whole = width >= 33;
    EXPECT_EQ(picture.find(" of 16 ") == std::string::npos, is_whole || width < 10) << picture;
  }
  PictureStyle style;
  style.width = 20;  // of a dim that is not drawn a line tells its blocks
  const MeshShape many = mesh_of({1000});
  EXPECT_LE(width_of(draw(&many, "(None, None, 'x')", Dims{2, 2, 1000}, 3, style)), 20);
}

// Without a shape the text says how many dims there are, in every form.
TEST(Picture, CountsTheDimsOfAText) {
  const MeshShape mesh = mesh_of({2, 2});
  const std::string wanted = text_of(&mesh, "('x', 'y')", std::nullopt);
  for (const char* spec : {"(x, y,)", " ( 0 , 1 ) ", "S(0), S(1)", "S(-2), S(-1)", "[{\"x\"}, {\"y\"}]",
                           "sharding<@mesh, [{\"x\"}, {\"y\"}]>", "{devices=[2,2]0,1,2,3}"}) {
    EXPECT_EQ(text_of(&mesh, spec, std::nullopt), wanted) << spec;
  }
  EXPECT_EQ(text_of(&mesh, "(('x', 'y'), None)", std::nullopt), draw(&mesh, "(('x', 'y'), None)", std::nullopt, 2, {}));
}

}  // namespace
}  // namespace distag::layout
