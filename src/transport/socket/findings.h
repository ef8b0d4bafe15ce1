#pragma once

#include <cstddef>
#include <span>
#include <string>

// Texts for the state found at an address where no connection could be made (Connection::found): the same words for
// each engine.
namespace distag::findings {

inline constexpr const char* kNobodyListens = "no process listens there";
inline constexpr const char* kHangsUp = "a process there closes the connection at once, as another program may";
inline constexpr const char* kIsSilent = "a process there takes connections and says nothing, as another program may";
inline constexpr const char* kBrokeOff = "a process there began a handshake and did not end it";
inline constexpr const char* kNoAnswer = "the host does not answer";
inline constexpr const char* kNoSource = "this machine has no address from which it could be reached";

// The text for an error of connect(), if this machine lacks nothing (own_lack).
const char* of_connect(int error);

// "it begins with "HTTP/1.1 400 Bad"": for a stream that is not ZMTP. Shows up to 16 bytes.
std::string begins_with(std::span<const std::byte> bytes);
// `why`: "it speaks no ZMTP: it begins with ...".
std::string another_program(const std::string& why);

}  // namespace distag::findings
