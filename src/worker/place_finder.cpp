#include "worker/place_finder.h"

#include "group/etcd_settings.h"

namespace distag {
namespace {

// Whether a name server or a launcher may have to be asked.
bool asks_others(const Places& wanted) {
  if (wanted.target.world_size == 0) return true;
  for (const std::string* const address : {&wanted.target.uri, &wanted.bind, &wanted.advertise}) {
    if (address->starts_with("tcp://") || address->starts_with("etcd://") || address->starts_with("pmix://"))
      return true;
  }
  return false;
}

}  // namespace

void PlaceFinder::find(const WorkerOptions& options, Nanos deadline, Done done) {
  assert_on_loop(loop_);
  Places wanted;
  wanted.target = resolve_rendezvous(options.rendezvous, options.rank, options.world_size, tools_.get_environment);
  wanted.bind = options.bind;
  wanted.advertise = options.advertise;
  if (wanted.target.world_size == 0 && !tools_.ask_pmix) {
    fail(Status::kUnsupported, "rendezvous: PMIx, which tells the size of the world, is not spoken here");
  }
  if (!tools_.resolve_address || !asks_others(wanted)) return done(wanted, {});
  done_ = std::move(done);
  if (deadline != kNever) {
    timer_ = loop_.start_timer(deadline, [this] {
      timer_ = 0;
      end({},
          Error(Status::kDeadline,
                "no address was known in time: the timeout is too short, or the name server is mute; give numbers"));
    });
  }
  compute_.post_or_drop([self = shared_from_this(), search = search_, wanted = std::move(wanted)]() mutable {
    std::optional<Error> error;
    try {
      self->resolve(wanted);
    } catch (...) {
      error = current_error();
    }
    self->loop_.post_or_drop([self, search, wanted = std::move(wanted), error = std::move(error)] {
      if (self->search_ == search) self->end(wanted, error);
    });
  });
}

// The timer is stopped first: `done` may begin another search.
void PlaceFinder::end(const Places& found, const std::optional<Error>& error) {
  const Done done = std::move(done_);
  stop();
  done(found, error);
}

void PlaceFinder::stop() {
  assert_on_loop(loop_);
  ++search_;
  loop_.cancel_timer(std::exchange(timer_, 0));
  done_ = nullptr;
}

// Any thread.
void PlaceFinder::resolve(Places& wanted) const {
  const std::string towards = ask_launcher(wanted.target);
  resolve_one("rendezvous", wanted.target.uri);
  resolve_one("bind", wanted.bind);
  resolve_one("advertise", wanted.advertise);
  if (tools_.own_address_towards) {
    wanted.own_host = own_address_towards(towards.empty() ? wanted.target.uri : towards);
  }
}

// Any thread. Gives the address of another machine of the job, if there is one that the target does not name.
std::string PlaceFinder::ask_launcher(RendezvousTarget& target) const {
  const bool meets_by_pmix = target.uri.starts_with("pmix://");
  if (target.world_size != 0 && !meets_by_pmix) return {};
  const PmixPlace told = tools_.ask_pmix();
  if (target.world_size == 0) target.world_size = told.place.world_size;
  if (!meets_by_pmix || told.other_node.empty()) return {};
  return tools_.resolve_address("tcp://" + told.other_node + ":1");  // any port will do
}

// Any thread. `option`: the one that gave the address.
void PlaceFinder::resolve_one(const char* option, std::string& address) const {
  try {
    address = tools_.resolve_address(address);
  } catch (...) {
    throw current_error().add_context(option);
  }
}

// Any thread.
std::string PlaceFinder::own_address_towards(const std::string& uri) const {
  if (!uri.starts_with("etcd://")) return tools_.own_address_towards(uri);
  return find_way_to_etcd(
      uri, [this](const std::string& server) { return tools_.own_address_towards(tools_.resolve_address(server)); });
}

}  // namespace distag
