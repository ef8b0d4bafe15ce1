// Loads the plugin by class_loader, uses it, and unloads it, three times. usage: host PLUGIN
#include <class_loader/class_loader.hpp>

#include "../use_component.hpp"

int main(int, char** argv) {
  const left before = count_left();
  frames all{};
  for (int i = 0; i < 3; ++i) {
    class_loader::ClassLoader loader(argv[1], false);  // loads it
    if (loader.getAvailableClasses<component>() != std::vector<std::string>{"trainer"}) return 1;
    {
      const std::shared_ptr<component> made = loader.createInstance<component>("trainer");
      use_component(*made, &all);
    }
    if (loader.unloadLibrary() != 0) return std::puts("failed: unloadLibrary"), 1;
    check_left(before, "plugin.so");
  }
  check_frames(&all);
  std::printf("class_loader: ok, %d frames, the longest %.2f ms\n", all.count, all.longest);
}
