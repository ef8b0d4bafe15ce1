// Reads answers of an etcd and the record of a group in it, which others have written. Input: the answer; the same
// bytes are also read as the record itself.
#include <string>
#include <utility>

#include "base/base64.h"
#include "base/error.h"
#include "fuzz/refusal.h"
#include "group/etcd_messages.h"
#include "group/etcd_settings.h"

namespace {

using namespace distag;
using fuzz::check;

constexpr const char* kPrefix = "/jobs/x";

template <typename Body>
bool is_taken(Body&& body) {
  return fuzz::is_taken(std::forward<Body>(body), Status::kProtocol);
}

void check_record(const std::string& text) {
  GroupRecord record;
  if (!is_taken([&] { record = read_group_record(text); })) return;
  check(record.world_size != 0 && !record.job.empty());
  const std::string again = write_group_record(record);
  check(write_group_record(read_group_record(again)) == again);
  RankTable table("here", record.job, record.world_size, record.book);
  for (const auto& [rank, seat] : record.book.seats) table.remove(seat.peer.incarnation);
  check(table.is_deserted());
}

void check_answer(const std::string& text) {
  is_taken([&] { check(!etcd::read_token(text).empty()); });
  is_taken([&] { check(etcd::read_lease(text).id > 0); });
  is_taken([&] { etcd::read_is_alive(text); });
  is_taken([&] { etcd::read_succeeded(text); });
  is_taken([&] {
    const etcd::View view = etcd::read_view(kPrefix, text);
    check(view.revision > 0 && !view.here.contains(0) && view.group.has_value() == (view.group_revision != 0));
  });
  etcd::read_news(text);
  check(etcd::read_refusal(text).text.size() <= 200);
}

void check_settings(const std::string& text) {
  is_taken([&] {
    const EtcdSettings settings = read_etcd_settings("etcd://" + text, [](const char*) { return nullptr; });
    check(!settings.endpoints.empty() && settings.prefix.size() > 1 && text.find('@') == std::string::npos);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_record(text);
  check_answer(text);
  check_settings(text);
  if (const auto bytes = from_base64(text)) check(to_base64(*bytes).size() == text.size());
  return 0;
}
