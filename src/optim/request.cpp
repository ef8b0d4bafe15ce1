#include "optim/request.h"

#include <bit>

#include "base/error.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

Value number(uint64_t bits) { return Value(std::bit_cast<int64_t>(bits)); }

const Value& need(const Value& request, const char* key) {
  const Value* found = request.find(key);
  if (found == nullptr) fail(Status::kInvalidArgument, "an optimizer's request has no \"{}\"", key);
  return *found;
}

uint64_t need_number(const Value& request, const char* key) {
  return std::bit_cast<uint64_t>(need(request, key).as_int64());
}

}  // namespace

std::string function_name(Verb verb) {
  switch (verb) {
    case Verb::kStep:
      return "distag.optimizer.step";
    case Verb::kMeasure:
      return "distag.optimizer.measure";
    case Verb::kScale:
      return "distag.optimizer.scale";
    case Verb::kSave:
      return "distag.optimizer.save";
    case Verb::kLoad:
      return "distag.optimizer.load";
    case Verb::kForget:
      return "distag.optimizer.forget";
  }
  return {};
}

Values Request::encode() const {
  Value::Map entries{{"maker", number(optimizer.maker)},
                     {"counter", number(optimizer.counter)},
                     {"kind", Value::text(settings.rule().name)},
                     {"settings", settings.save()}};
  if (verb == Verb::kScale) {
    entries.emplace_back("factor", Value(factor));
    entries.emplace_back("passes", number(passes));
  }
  if (verb == Verb::kLoad) entries.emplace_back("state", state);
  Values args;
  args.reserve(1 + parameters.size());
  args.push_back(Value::map(std::move(entries)));
  args.insert(args.end(), parameters.begin(), parameters.end());
  return args;
}

Request Request::decode(Verb verb, const Values& args) {
  if (args.empty()) fail(Status::kInvalidArgument, "an optimizer's request is missing");
  const Value& entries = args[0];
  Request request{.verb = verb,
                  .optimizer = {need_number(entries, "maker"), need_number(entries, "counter")},
                  .settings = Settings(find_rule(need(entries, "kind").as_text()))};
  request.settings.load(need(entries, "settings"));
  if (verb == Verb::kScale) {
    request.factor = need(entries, "factor").as_float64();
    request.passes = need_number(entries, "passes");
  }
  if (verb == Verb::kLoad) request.state = need(entries, "state");
  request.parameters.assign(args.begin() + 1, args.end());
  return request;
}

}  // namespace distag::optim
