#include "store/json.h"

#include <set>
#include <vector>

namespace distag::store {

nlohmann::json parse_json(std::string_view text, const std::string& file) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;
  auto check = [&](int depth, Event event, nlohmann::json& parsed) {
    if (depth > 40) refuse(file, "it is nested deeper than 40");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      refuse(file, fmt::format("the key \"{}\" is there twice", parsed.get<std::string>().substr(0, 80)));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, check);
  } catch (const nlohmann::json::exception&) {
    refuse(file, "its text is no JSON");
  }
}

}  // namespace distag::store
