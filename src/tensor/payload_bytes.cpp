#include "tensor/payload_bytes.h"

namespace distag {

uint64_t payload_bytes(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kText:
      return value.as_text().size();
    case ValueKind::kBytes:
      return value.as_bytes().size();
    case ValueKind::kTensor:
      return value.as_tensor().byte_size();
    case ValueKind::kList: {
      uint64_t bytes = 0;
      for (const Value& item : value.as_list()) bytes += sizeof item + payload_bytes(item);
      return bytes;
    }
    case ValueKind::kMap: {
      uint64_t bytes = 0;
      for (const auto& [key, item] : value.as_map()) bytes += sizeof item + key.size() + payload_bytes(item);
      return bytes;
    }
    default:
      return sizeof value;
  }
}

}  // namespace distag
