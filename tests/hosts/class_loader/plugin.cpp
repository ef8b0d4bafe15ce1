// A plugin for class_loader, as nodes and plugins of ROS 2 are loaded.
#include <class_loader/class_loader.hpp>

#include "../trainer.hpp"

CLASS_LOADER_REGISTER_CLASS(trainer, component)
