#include <cstdarg>
#include <cstdio>

#include "tests/backend/gpu/fakes/driver.h"

namespace fake {

bool misuse(const char* text, ...) {
  char line[512];
  va_list values;
  va_start(values, text);
  std::vsnprintf(line, sizeof line, text, values);
  va_end(values);
  std::fprintf(stderr, "stand-in library: %s\n", line);
  return false;
}

}  // namespace fake
