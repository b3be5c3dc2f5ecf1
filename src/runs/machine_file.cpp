#include "runs/machine_file.h"

#include <filesystem>

#include "base/error.h"
#include "base/path.h"

namespace ingot::runs {

MachineFile read_machine_file(const std::string& name) {
  std::filesystem::path path = name;
  if (!path_exists(path)) path = std::filesystem::path("recipes/machines") / (name + ".yaml");
  if (!path_exists(path)) {
    throw_hint(ErrorKind::not_found, "give a file, or a name of recipes/machines",
               "--machine {}: there is neither this file nor {}", name, path.string());
  }
  return read_config<MachineFile>(ConfigNode::from_file(path));
}

}  // namespace ingot::runs
