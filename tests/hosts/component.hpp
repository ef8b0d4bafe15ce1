// The plugin that the hosts in C++ load: a component that trains, and serves calls in frames.
#ifndef DISTAG_TESTS_HOSTS_COMPONENT_HPP
#define DISTAG_TESTS_HOSTS_COMPONENT_HPP

#include <vector>

class component {
 public:
  virtual ~component() = default;
  virtual std::vector<double> train() = 0;  // d sum(x * x) / dx at 1, 2, 3, by two workers
  virtual bool frame() = 0;                 // serves calls of 1 MiB; false: done
};

#endif
