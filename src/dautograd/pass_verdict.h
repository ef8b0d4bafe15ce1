#pragma once

#include <memory>

#include "dautograd/dautograd_shared.h"
#include "dautograd/participants.h"

namespace distag {

class PassInitiator;

// The verdict of a pass, on its way to all that wait for it. On the loop.
//
// A worker is forgotten when it has been told, and not before: without memory the rest are told later, since they would
// wait for ever without the verdict. So no participant is left in the end.
class PassVerdict {
 public:
  PassVerdict(DautogradShared& shared, Participants& participants, const Id& context, const Id& pass)
      : shared_(shared), participants_(participants), context_(context), pass_(pass) {}

  // `holder` has this and the participants as members, and lives until all are told.
  void tell(bool commits, const Error& error, const std::shared_ptr<PassInitiator>& holder);

 private:
  void tell_those_left(bool commits, const Error& error);

  DautogradShared& shared_;
  Participants& participants_;
  const Id context_;
  const Id pass_;
  TaskPlace again_;
  Error error_;  // while it waits there
};

}  // namespace distag
