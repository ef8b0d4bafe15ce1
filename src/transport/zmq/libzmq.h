#pragma once

#include <zmq.h>

#include "base/linked_function.h"

namespace distag {

#define DISTAG_FUNCTIONS_OF_LIBZMQ(each)                                                                           \
  each(zmq_bind) each(zmq_close) each(zmq_connect) each(zmq_ctx_new) each(zmq_ctx_set) each(zmq_ctx_term)          \
      each(zmq_errno) each(zmq_getsockopt) each(zmq_has) each(zmq_msg_close) each(zmq_msg_data) each(zmq_msg_get)  \
          each(zmq_msg_gets) each(zmq_msg_init) each(zmq_msg_init_data) each(zmq_msg_init_size) each(zmq_msg_more) \
              each(zmq_msg_move) each(zmq_msg_recv) each(zmq_msg_send) each(zmq_msg_size) each(zmq_setsockopt)     \
                  each(zmq_socket) each(zmq_socket_monitor) each(zmq_strerror) each(zmq_unbind) each(zmq_version)

// The functions of the libzmq that this library was linked with, whatever the host exports under the same names.
struct Libzmq {
#define DISTAG_MEMBER(name) LinkedFunction<decltype(::name)> name{#name, &::name};
  DISTAG_FUNCTIONS_OF_LIBZMQ(DISTAG_MEMBER)
#undef DISTAG_MEMBER

  // Called before functions that must not throw. Throws OUT_OF_MEMORY.
  void find_all() const {
#define DISTAG_FIND(name) static_cast<void>(name.get());
    DISTAG_FUNCTIONS_OF_LIBZMQ(DISTAG_FIND)
#undef DISTAG_FIND
  }
};
#undef DISTAG_FUNCTIONS_OF_LIBZMQ
inline constinit const Libzmq libzmq;

}  // namespace distag
