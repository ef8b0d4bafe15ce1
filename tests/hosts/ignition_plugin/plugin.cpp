// A plugin for the loader of Gazebo.
#include <ignition/plugin/Register.hh>

#include "../trainer.hpp"

IGNITION_ADD_PLUGIN(trainer, component)
