// Loads the plugin by Gazebo's loader, uses it, and unloads it, three times. usage: host PLUGIN
#include <ignition/plugin/Loader.hh>
#include <ignition/plugin/PluginPtr.hh>

#include "../use_component.hpp"

int main(int, char** argv) {
  const left before = count_left();
  frames all{};
  for (int i = 0; i < 3; ++i) {
    ignition::plugin::Loader loader;
    if (loader.LoadLib(argv[1]).count("trainer") != 1) return std::puts("failed: LoadLib"), 1;
    {
      ignition::plugin::PluginPtr made = loader.Instantiate("trainer");
      component* const used = made->QueryInterface<component>();
      if (used == nullptr) return std::puts("failed: QueryInterface"), 1;
      use_component(*used, &all);
    }
    if (!loader.ForgetLibrary(argv[1])) return std::puts("failed: ForgetLibrary"), 1;
    check_left(before, "plugin.so");
  }
  check_frames(&all);
  std::printf("ignition_plugin: ok, %d frames, the longest %.2f ms\n", all.count, all.longest);
}
