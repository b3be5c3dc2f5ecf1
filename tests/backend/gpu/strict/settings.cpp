#include "tests/backend/gpu/strict/settings.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace strict {

Settings settings_of_environment(bool hip) {
  Settings settings;
  if (hip) {
    settings.architecture = "gfx942";
    settings.version_major = 7;
    settings.version_minor = 0;
  }
  const char* text = std::getenv("STRICT_DRIVER");
  std::istringstream all(text != nullptr ? text : "");
  for (std::string item; std::getline(all, item, ',');) {
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    std::istringstream value(equals == std::string::npos ? "" : item.substr(equals + 1));
    char point = '.';
    if (key == "devices") value >> settings.devices;
    if (key == "memory") value >> settings.memory;
    if (key == "arch") value >> settings.architecture;
    if (key == "version") value >> settings.version_major >> point >> settings.version_minor;
    if (key == "delay_us") value >> settings.delay_us;
    if (key == "lost_after") value >> settings.lost_after;
    if (value.fail() || value.tellg() == std::streampos(0) || point != '.') {
      std::fprintf(stderr, "strict driver: STRICT_DRIVER has '%s', which is not understood\n", item.c_str());
      std::abort();
    }
  }
  return settings;
}

}  // namespace strict
