// The requests of each host in C++ to the component that it has loaded.
#ifndef DISTAG_TESTS_HOSTS_USE_COMPONENT_HPP
#define DISTAG_TESTS_HOSTS_USE_COMPONENT_HPP

#include <sched.h>

#include "component.hpp"
#include "left.h"

inline void use_component(component& used, frames* all) {
  if (used.train() != std::vector<double>{2, 4, 6}) {
    std::puts("failed: the gradients");
    std::exit(1);
  }
  for (bool goes_on = true; goes_on; sched_yield()) {
    begin_frame(all);
    goes_on = used.frame();
    end_frame(all);
  }
  end_round(all);
}

#endif
