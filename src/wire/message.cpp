#include "wire/message.h"

namespace distag::wire {

const char* body_name(const Body& body) {
  static constexpr const char* kNames[] = {"HELLO",
                                           "WELCOME",
                                           "REFUSE",
                                           "ACK",
                                           "PING",
                                           "LEAVE",
                                           "CHUNK",
                                           "CALL",
                                           "REPLY",
                                           "CANCEL",
                                           "JOIN",
                                           "ROSTER",
                                           "SHUTDOWN_POLL",
                                           "SHUTDOWN_ANSWER",
                                           "SHUTDOWN_VERDICT",
                                           "JOINED",
                                           "RELEASE",
                                           "DISCOVER",
                                           "DISCOVERED",
                                           "START",
                                           "GRAD",
                                           "DONE",
                                           "VERDICT",
                                           "PROBE",
                                           "PROBE_ANSWER",
                                           "HOLDERS",
                                           "FORK",
                                           "FORKED",
                                           "DROP",
                                           "SEEK",
                                           "SOUGHT",
                                           "PART",
                                           "CALLS",
                                           "MESH_END",
                                           "WHERE",
                                           "HERE",
                                           "GO",
                                           "ENTERED",
                                           "CREDIT",
                                           "WANT_CREDIT",
                                           "EXPECT"};
  static_assert(std::size(kNames) == std::variant_size_v<Body>);
  return kNames[body.index()];
}

}  // namespace distag::wire
