// What the strict driver, a library in the program under test, sends to its GPU, a process of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strict {

enum class CommandKind : uint32_t {
  map,    // makes `bytes` from `to` on accessible, filled with 0xff bytes: at once
  unmap,  // the opposite, after a look at what lies beside them: at once
  fill,   // the rest in the order of their stream
  copy,
  launch,
  library,  // a function of fakes/device_functions.h
  wait,     // until stream `other` has completed `number` commands
};

struct Command {
  CommandKind kind = CommandKind::map;
  uint32_t stream = 0;
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;
  uint32_t other = 0;
  uint32_t value = 0;  // fill: the byte
  uint32_t grid_x = 0;
  uint32_t grid_y = 0;
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
  uint32_t args_bytes = 0;
  char kernel[92] = {};           // or the library's function
  unsigned char args[4096] = {};  // sent as far as they are used

  size_t size() const { return offsetof(Command, args) + args_bytes; }
};

}  // namespace strict
