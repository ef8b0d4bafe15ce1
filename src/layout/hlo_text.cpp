// The form of HLO: an array of tiles, each with the ranks that hold it. {devices=[2,1,2]0,1,2,3
// last_tile_dim_replicate}
#include <numeric>

#include "layout/spec_forms.h"

namespace distag::layout {
namespace {

// The ranks that hold each tile, ascending, by tile (row-major) and, within it, by the part of the sum they hold.
struct Tiles {
  Dims counts;        // number of tiles along each dim of the tensor
  int64_t parts = 1;  // number of parts of a sum
  std::vector<std::vector<int64_t>> holders;
  bool operator==(const Tiles& other) const {
    return counts == other.counts && parts == other.parts && holders == other.holders;
  }
};

// The axes of size > 1, in the order of the array: those of dim 0, of dim 1, ..., the repeated axes, the partial axes.
struct ArrayOrder {
  Axes cut;
  Axes repeated;
  Axes partial;

  ArrayOrder(const MeshShape& mesh, const Spec& spec) {
    for (size_t i = 0; i < spec.rank(); ++i) {
      for (uint8_t axis : mesh.used(spec.dim(i))) cut.push_back(axis);
    }
    partial = axes_of(mesh.used(spec.partial()));
    for (uint8_t axis = 0; axis < mesh.axis_count(); ++axis) {
      if (mesh.size(axis) > 1 && !cut.contains(axis) && !partial.contains(axis)) repeated.push_back(axis);
    }
  }
};

Tiles tiles_of(const MeshShape& mesh, const Spec& spec) {
  const ArrayOrder order(mesh, spec);
  Tiles tiles;
  for (size_t i = 0; i < spec.rank(); ++i) tiles.counts.push_back(mesh.size_of(spec.dim(i)));
  tiles.parts = mesh.size_of(order.partial);
  tiles.holders.resize(static_cast<size_t>(mesh.size_of(order.cut) * tiles.parts));
  for (int64_t position = 0; position < mesh.count(); ++position) {
    const int64_t cell =
        mesh.index_along(order.cut, position) * tiles.parts + mesh.index_along(order.partial, position);
    tiles.holders[static_cast<size_t>(cell)].push_back(mesh.ranks()[static_cast<size_t>(position)]);
  }
  for (auto& ranks : tiles.holders) std::sort(ranks.begin(), ranks.end());
  return tiles;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// "[2,2]<=[4]T(1,0)" or "[2,2]0,1,2,3".
struct DeviceArray {
  std::vector<int64_t> shape;
  std::vector<int64_t> devices;        // row-major
  std::vector<bool> trailing_is_part;  // for each dim after those of the tensor: part of a sum, or repeated
};

// The number of devices that a text must have. Without a mesh the text itself determines it.
struct DeviceCount {
  const MeshShape* mesh;
  int64_t count;

  void check(const Scanner& scanner, size_t place, const std::vector<int64_t>& sizes) {
    const int64_t most = mesh == nullptr ? kMaxMembers : mesh->count();
    int64_t product = 1;
    for (int64_t size : sizes) {
      if (size < 1 || product > most / size) {
        if (mesh == nullptr) scanner.refuse(Status::kInvalidArgument, place, "the sizes make no 1 to {} devices", most);
        scanner.refuse(Status::kInvalidArgument, place, "the sizes do not make {} devices, the members of mesh \"{}\"",
                       most, mesh->name());
      }
      product *= size;
    }
    if (mesh == nullptr && count == 0) count = product;
    if (product == count) return;
    if (mesh == nullptr) {
      scanner.refuse(Status::kInvalidArgument, place, "the sizes make {} devices, those before {}", product, count);
    }
    scanner.refuse(Status::kInvalidArgument, place, "the sizes make {} devices, but mesh \"{}\" has {} members",
                   product, mesh->name(), count);
  }
};

std::vector<int64_t> read_order(Scanner& scanner, size_t count) {
  const size_t place = scanner.place();
  std::vector<int64_t> order = scanner.numbers('(', ')', "in the order of T");
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> each(count);
  std::iota(each.begin(), each.end(), 0);
  if (sorted != each) {
    scanner.refuse(Status::kInvalidArgument, place, "the order of T does not have each number below {} once", count);
  }
  return order;
}

// 0, 1, 2, ... as an array of `sizes`, its dims in another order, row-major.
std::vector<int64_t> transposed_iota(const std::vector<int64_t>& sizes, const std::vector<int64_t>& order) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  std::vector<int64_t> result{0};
  for (int64_t dim : order) {
    std::vector<int64_t> next;
    for (int64_t start : result) {
      for (int64_t i = 0; i < sizes[static_cast<size_t>(dim)]; ++i) {
        next.push_back(start + i * strides[static_cast<size_t>(dim)]);
      }
    }
    result = std::move(next);
  }
  return result;
}

std::vector<int64_t> read_iota(DeviceCount& count, Scanner& scanner) {
  const size_t place = scanner.place();
  const std::vector<int64_t> sizes = scanner.numbers('[', ']', "of the sizes behind <=");
  count.check(scanner, place, sizes);
  std::vector<int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (scanner.take('T')) order = read_order(scanner, sizes.size());
  return transposed_iota(sizes, order);
}

std::vector<int64_t> read_ids(const DeviceCount& count, Scanner& scanner) {
  std::vector<int64_t> ids;
  do {
    if (static_cast<int64_t>(ids.size()) == count.count) {
      scanner.refuse(Status::kInvalidArgument, scanner.place(), "there are more devices than members: {}", ids.size());
    }
    ids.push_back(scanner.number("of a device"));
  } while (scanner.take(','));
  return ids;
}

void read_trailing_dims(Scanner& scanner, DeviceArray& array) {
  if (scanner.take_word("last_tile_dim_replicate")) {
    array.trailing_is_part = {false};
    return;
  }
  if (!scanner.take_word("last_tile_dims")) return;
  scanner.expect('=', "behind last_tile_dims");
  scanner.expect('{', "behind last_tile_dims=");
  while (!scanner.take('}')) {
    if (!array.trailing_is_part.empty()) scanner.expect(',', "between two kinds");
    if (scanner.take_word("replicated")) {
      array.trailing_is_part.push_back(false);
    } else if (scanner.take_word("unreduced")) {
      array.trailing_is_part.push_back(true);
    } else {
      scanner.refuse(Status::kUnsupported, scanner.place(), "a kind of dim other than replicated and unreduced");
    }
  }
}

// Reads the text after "devices". `rank` is that of the tensor; nullopt without a mesh.
DeviceArray read_array(DeviceCount count, Scanner& scanner, std::optional<size_t> rank) {
  DeviceArray array;
  scanner.expect('=', "behind devices");
  const size_t place = scanner.place();
  array.shape = scanner.numbers('[', ']', "of the sizes behind devices=");
  count.check(scanner, place, array.shape);
  array.devices = scanner.take("<=") ? read_iota(count, scanner) : read_ids(count, scanner);
  if (static_cast<int64_t>(array.devices.size()) != count.count) {
    scanner.refuse(Status::kInvalidArgument, scanner.place(), "{} devices for {} tiles", array.devices.size(),
                   count.count);
  }
  read_trailing_dims(scanner, array);
  const size_t trailing = array.trailing_is_part.size();
  if (rank && array.shape.size() != *rank + trailing) {
    scanner.refuse(Status::kInvalidArgument, place, "{} sizes for a tensor of {} dims and {} trailing ones",
                   array.shape.size(), *rank, trailing);
  }
  if (array.shape.size() < trailing) {
    scanner.refuse(Status::kInvalidArgument, place, "{} sizes and {} trailing dims", array.shape.size(), trailing);
  }
  return array;
}

int32_t rank_of(const Scanner& scanner, int64_t device) {
  if (device >= 0 && device <= INT32_MAX) return static_cast<int32_t>(device);
  scanner.refuse(Status::kInvalidArgument, 0, "there is no device {}: they are numbered from 0", device);
}

// The index of a tile along each dim of the tensor and, last, of a part of the sum.
using TileNumber = std::vector<int64_t>;

// The tile number at each position.
std::vector<TileNumber> tile_numbers(const MeshShape& mesh, const Scanner& scanner, const DeviceArray& array,
                                     size_t rank) {
  std::vector<TileNumber> numbers(array.devices.size());
  for (size_t i = 0; i < array.devices.size(); ++i) {
    const int64_t device = array.devices[i];
    std::optional<int64_t> position;
    if (device >= 0 && device <= INT32_MAX) position = mesh.position_of(static_cast<int32_t>(device));
    if (!position || !numbers[static_cast<size_t>(*position)].empty()) {
      scanner.refuse(Status::kInvalidArgument, 0, "device {} is {} of mesh \"{}\"", device,
                     position ? "there twice, one member" : "no member", mesh.name());
    }
    TileNumber& number = numbers[static_cast<size_t>(*position)];
    number.resize(rank + 1);
    auto rest = static_cast<int64_t>(i);
    int64_t part_stride = 1;
    for (size_t dim = array.shape.size(); dim-- > 0; rest /= array.shape[dim]) {
      if (dim < rank) number[dim] = rest % array.shape[dim];
      if (dim < rank || !array.trailing_is_part[dim - rank]) continue;
      number[rank] += rest % array.shape[dim] * part_stride;
      part_stride *= array.shape[dim];
    }
  }
  return numbers;
}

Tiles tiles_of(const DeviceArray& array, size_t rank, const MeshShape& mesh, const std::vector<TileNumber>& numbers) {
  Tiles tiles;
  for (size_t i = 0; i < rank; ++i) tiles.counts.push_back(array.shape[i]);
  for (size_t i = rank; i < array.shape.size(); ++i) {
    if (array.trailing_is_part[i - rank]) tiles.parts *= array.shape[i];
  }
  tiles.holders.resize(static_cast<size_t>(element_count(tiles.counts) * tiles.parts));
  for (size_t position = 0; position < numbers.size(); ++position) {
    int64_t cell = 0;
    for (size_t i = 0; i < rank; ++i) cell = cell * tiles.counts[i] + numbers[position][i];
    tiles.holders[static_cast<size_t>(cell * tiles.parts + numbers[position][rank])].push_back(mesh.ranks()[position]);
  }
  for (auto& ranks : tiles.holders) std::sort(ranks.begin(), ranks.end());
  return tiles;
}

// Assigns each axis to the dim along which a step on it changes the tile; a larger step is more significant.
Spec guess(const MeshShape& mesh, const std::vector<TileNumber>& numbers, size_t rank) {
  Spec spec(rank);
  std::array<std::vector<std::pair<int64_t, uint8_t>>, kMaxRank> steps;
  AxisSet partial = 0;
  for (uint8_t axis = 0; axis < mesh.axis_count(); ++axis) {
    if (mesh.size(axis) == 1) continue;
    const TileNumber& next = numbers[static_cast<size_t>(mesh.moved(0, {axis}, 1))];
    for (size_t i = 0; i < rank; ++i) {
      if (next[i] != numbers[0][i]) steps[i].emplace_back(numbers[0][i] - next[i], axis);
    }
    if (next[rank] != numbers[0][rank]) partial |= AxisSet{1} << axis;
  }
  for (size_t i = 0; i < rank; ++i) {
    std::sort(steps[i].begin(), steps[i].end());
    for (const auto& [step, axis] : steps[i]) {
      if (spec.cut() & (AxisSet{1} << axis)) continue;  // a skew array, which the comparison rejects
      spec.dim(i).push_back(axis);
    }
  }
  spec.set_partial(partial & ~spec.cut());
  return spec;
}

// ---- printing -------------------------------------------------------------------------------------------------------

std::string joined(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::string shape_text(const MeshShape& mesh, const Spec& spec, const ArrayOrder& order) {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < spec.rank(); ++i) shape.push_back(mesh.size_of(spec.dim(i)));
  if (!order.repeated.empty()) shape.push_back(mesh.size_of(order.repeated));
  if (!order.partial.empty()) shape.push_back(mesh.size_of(order.partial));
  return "[" + joined(shape) + "]";
}

std::string trailing_text(const ArrayOrder& order) {
  if (order.partial.empty()) return order.repeated.empty() ? "" : " last_tile_dim_replicate";
  return order.repeated.empty() ? " last_tile_dims={unreduced}" : " last_tile_dims={replicated, unreduced}";
}

bool is_whole(const ArrayOrder& order) { return order.cut.empty() && order.partial.empty(); }

// "<=[2,3]T(1,0)": adjacent axes that stay together form one dim.
std::string iota_text(const MeshShape& mesh, const ArrayOrder& order) {
  Axes all = order.cut;
  for (uint8_t axis : order.repeated) all.push_back(axis);
  for (uint8_t axis : order.partial) all.push_back(axis);
  const Axes used = axes_of(set_of(all));
  struct Run {
    size_t first;  // index among the used axes
    int64_t size;
    size_t length;
  };
  std::vector<Run> runs;
  for (uint8_t axis : all) {
    const auto number = static_cast<size_t>(std::find(used.begin(), used.end(), axis) - used.begin());
    if (!runs.empty() && runs.back().first + runs.back().length == number) {
      runs.back().size *= mesh.size(axis);
      ++runs.back().length;
    } else {
      runs.push_back({number, mesh.size(axis), 1});
    }
  }
  std::vector<Run> sorted = runs;
  std::sort(sorted.begin(), sorted.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  std::vector<int64_t> sizes;
  for (const Run& run : sorted) sizes.push_back(run.size);
  std::vector<int64_t> places;
  for (const Run& run : runs) {
    places.push_back(std::count_if(runs.begin(), runs.end(), [&run](const Run& r) { return r.first < run.first; }));
  }
  return "<=[" + joined(sizes) + "]" + (runs.size() > 1 ? "T(" + joined(places) + ")" : "");
}

}  // namespace

Spec read_hlo(const MeshShape& mesh, Scanner& scanner, size_t rank) {
  scanner.expect('{', "at the beginning");
  if (scanner.sees('{')) {
    scanner.refuse(Status::kInvalidArgument, scanner.place(), "a tuple of shardings: give that of one tensor");
  }
  Spec spec(rank);
  if (scanner.take_word("maximal")) {
    scanner.refuse(Status::kUnsupported, scanner.place(), "a tensor on one device alone: no spec says that");
  }
  if (!scanner.take_word("replicated")) {
    const size_t place = scanner.place();
    if (!scanner.take_word("devices")) {
      scanner.refuse(Status::kInvalidArgument, place, "replicated or devices=[..] is missing");
    }
    const DeviceArray array = read_array({&mesh, mesh.count()}, scanner, rank);
    const std::vector<TileNumber> numbers = tile_numbers(mesh, scanner, array, rank);
    spec = guess(mesh, numbers, rank);
    if (!(tiles_of(mesh, spec) == tiles_of(array, rank, mesh, numbers))) {
      scanner.refuse(Status::kInvalidArgument, place, "no spec of mesh \"{}\" of shape {} gives this array of devices",
                     mesh.name(), to_string(mesh.sizes()));
    }
  }
  scanner.expect('}', "at the end");
  return spec;
}

NamedDevices read_hlo_alone(std::string_view text) {
  Scanner scanner(text);
  scanner.expect('{', "at the beginning of a spec without a mesh, which is in the form of HLO");
  MeshRequest request;
  request.name = "devices";
  request.shape = {1};
  size_t rank = 0;
  AxisSet partial = 0;
  bool is_of_any_rank = true;
  bool is_everywhere = false;
  if (scanner.take_word("replicated")) {
    is_everywhere = true;
    request.ranks = {0};
  } else if (scanner.take_word("maximal")) {
    if (!scanner.take_word("device")) scanner.refuse(Status::kInvalidArgument, scanner.place(), "device= is missing");
    scanner.expect('=', "behind device");
    request.ranks = {rank_of(scanner, scanner.number("of a device"))};
  } else if (scanner.take_word("devices")) {
    const DeviceArray array = read_array({nullptr, 0}, scanner, std::nullopt);
    is_of_any_rank = false;
    if (array.shape.size() > kMaxAxes) {
      scanner.refuse(Status::kInvalidArgument, 0, "{} sizes: at most {}", array.shape.size(), kMaxAxes);
    }
    request.shape = Dims(array.shape);
    for (const int64_t device : array.devices) request.ranks.push_back(rank_of(scanner, device));
    rank = array.shape.size() - array.trailing_is_part.size();
    for (size_t i = rank; i < array.shape.size(); ++i) {
      if (array.trailing_is_part[i - rank]) partial |= AxisSet{1} << i;
    }
  } else {
    scanner.refuse(Status::kInvalidArgument, scanner.place(), "replicated, maximal or devices=[..] is missing");
  }
  scanner.expect('}', "at the end");
  scanner.expect_end();
  Spec spec(rank);
  for (size_t i = 0; i < rank; ++i) spec.dim(i) = {static_cast<uint8_t>(i)};
  spec.set_partial(partial);
  return {MeshShape::make(request), spec, is_of_any_rank, is_everywhere};
}

std::string print_hlo(const MeshShape& mesh, const Spec& spec) {
  const ArrayOrder order(mesh, spec);
  if (is_whole(order)) return "{replicated}";
  const Tiles tiles = tiles_of(mesh, spec);
  std::vector<int64_t> devices;
  const auto parts = static_cast<size_t>(tiles.parts);
  for (size_t tile = 0; tile < tiles.holders.size(); tile += parts) {
    for (size_t i = 0; i < tiles.holders[tile].size(); ++i) {
      for (size_t part = 0; part < parts; ++part) devices.push_back(tiles.holders[tile + part][i]);
    }
  }
  return "{devices=" + shape_text(mesh, spec, order) + joined(devices) + trailing_text(order) + "}";
}

std::string print_hlo_iota(const MeshShape& mesh, const Spec& spec) {
  const ArrayOrder order(mesh, spec);
  if (is_whole(order)) return "{replicated}";
  for (int64_t position = 0; position < mesh.count(); ++position) {
    if (mesh.ranks()[static_cast<size_t>(position)] == position) continue;
    fail(Status::kUnsupported, "mesh \"{}\": ranks that are not 0, 1, 2, ... cannot be said with <=: list the devices",
         mesh.name());
  }
  return "{devices=" + shape_text(mesh, spec, order) + iota_text(mesh, order) + trailing_text(order) + "}";
}

}  // namespace distag::layout
