#include "versions.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "handles.h"

namespace distag_tool {
namespace {

// The protocol version in the report of a worker, which has it before a start too.
int read_protocol() {
  distag_error error = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.world_size = 1;
  options.rendezvous = "inproc://distag-version";
  distag_worker* made = nullptr;
  distag_worker_create(&options, &made, &error);
  const Worker worker(made);
  std::string text;
  for (size_t size = 4096; size >= text.size() && error.code == DISTAG_OK;) {
    text.resize(size + 1);
    distag_worker_copy_report(worker.get(), text.data(), text.size(), &size, &error);
  }
  check(error);
  return nlohmann::json::parse(text.c_str()).at("worker").at("protocol").get<int>();
}

}  // namespace

Versions read_versions() {
  Versions versions;
  versions.loaded = distag_get_version();
  versions.compiled = std::to_string(DISTAG_VERSION_MAJOR) + "." + std::to_string(DISTAG_VERSION_MINOR) + "." +
                      std::to_string(DISTAG_VERSION_PATCH);
  versions.abi = DISTAG_ABI_MAJOR;
  versions.serves_abi = distag_get_api(DISTAG_ABI_MAJOR) != nullptr;
  versions.protocol = read_protocol();
  return versions;
}

int print_versions(bool as_json) {
  const Versions versions = read_versions();
  if (as_json) {
    const nlohmann::ordered_json json = {
        {"library", versions.loaded}, {"abi", versions.abi}, {"protocol", versions.protocol}};
    std::printf("%s\n", json.dump(2).c_str());
  } else {
    std::printf("distag %s, ABI %d, protocol %d\n", versions.loaded.c_str(), versions.abi, versions.protocol);
  }
  return 0;
}

}  // namespace distag_tool
