#include "tests/backend/gpu/ptx/data_movement.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace ingot::ptx {
namespace {

using Space = Movement::Space;

// The address of a lane's access; an address in shared memory has 32 bits.
template <Space space>
uint64_t address_of(const Instruction& instruction, const Warp& warp, uint32_t operand, int lane) {
  if constexpr (space == Space::shared) {
    return static_cast<uint32_t>(warp.at<const uint32_t>(operand)[lane] + instruction.literal);
  } else {
    return warp.at<const uint64_t>(operand)[lane] + instruction.literal;
  }
}

std::byte* place_in_local(const Warp& warp, uint64_t address, size_t bytes, int lane) {
  if (address > warp.local_bytes || bytes > warp.local_bytes - address || address % bytes != 0) {
    throw_error(ErrorKind::internal, "an access of {} bytes at {} of the {} bytes of local memory", bytes, address,
                warp.local_bytes);
  }
  return warp.local + lane * warp.local_bytes + address;
}

template <Space space>
const std::byte* place_to_read(Warp& warp, uint64_t address, size_t bytes, int lane) {
  if constexpr (space == Space::shared) {
    return warp.shared->read(static_cast<uint32_t>(address), bytes, warp.accessor(lane));
  } else if constexpr (space == Space::global) {
    return warp.global->read(address, bytes, warp.thread(lane));
  } else if constexpr (space == Space::local) {
    return place_in_local(warp, address, bytes, lane);
  } else {
    const size_t size = warp.parameters.size();
    if (address > size || bytes > size - address || address % bytes != 0) {
      throw_error(ErrorKind::internal, "an access of {} bytes at {} of the {} bytes of parameters", bytes, address,
                  size);
    }
    return warp.parameters.data() + address;
  }
}

template <Space space>
std::byte* place_to_write(Warp& warp, uint64_t address, size_t bytes, int lane) {
  if constexpr (space == Space::shared) {
    return warp.shared->write(static_cast<uint32_t>(address), bytes, warp.accessor(lane));
  } else if constexpr (space == Space::local) {
    return place_in_local(warp, address, bytes, lane);
  } else {
    return warp.global->write(address, bytes, warp.thread(lane));
  }
}

template <Space space, class Item, class Register>
void load(const Instruction& instruction, Warp& warp, uint32_t active) {
  const int items = instruction.items;
  const uint32_t from = instruction.at[items];
  for_each_lane(active, [&](int lane) {
    const uint64_t address = address_of<space>(instruction, warp, from, lane);
    const std::byte* place = place_to_read<space>(warp, address, items * sizeof(Item), lane);
    for (int i = 0; i < items; ++i) {
      Item item;
      std::memcpy(&item, place + i * sizeof(Item), sizeof(Item));
      warp.at<Register>(instruction.at[i])[lane] =
          static_cast<Register>(item);  // NOLINT(bugprone-signed-char-misuse): ld.s8 extends the sign
    }
  });
}

template <Space space, class Item, class Register>
void store(const Instruction& instruction, Warp& warp, uint32_t active) {
  const int items = instruction.items;
  for_each_lane(active, [&](int lane) {
    const uint64_t address = address_of<space>(instruction, warp, instruction.at[0], lane);
    std::byte* place = place_to_write<space>(warp, address, items * sizeof(Item), lane);
    for (int i = 0; i < items; ++i) {
      const auto item = static_cast<Item>(warp.at<const Register>(instruction.at[i + 1])[lane]);
      std::memcpy(place + i * sizeof(Item), &item, sizeof(Item));
    }
  });
}

template <Space space, class Item, class Register>
Handler handler_of(const Movement& movement) {
  if constexpr (sizeof(Register) < sizeof(Item)) {
    return nullptr;
  } else {
    if (movement.is_load) return load<space, Item, Register>;
    if constexpr (space == Space::parameter) return nullptr;
    return store<space, Item, Register>;
  }
}

template <Space space, class Item>
Handler handler_in_register(const Movement& movement, int register_bytes) {
  switch (register_bytes) {
    case 2: return handler_of<space, Item, uint16_t>(movement);
    case 4: return handler_of<space, Item, uint32_t>(movement);
    default: return handler_of<space, Item, uint64_t>(movement);
  }
}

template <Space space>
Handler handler_in_space(const Movement& movement, int register_bytes) {
  switch (movement.item_bytes * 2 + (movement.is_signed ? 1 : 0)) {
    case 2: return handler_in_register<space, uint8_t>(movement, register_bytes);
    case 3: return handler_in_register<space, int8_t>(movement, register_bytes);
    case 4: return handler_in_register<space, uint16_t>(movement, register_bytes);
    case 5: return handler_in_register<space, int16_t>(movement, register_bytes);
    case 8: return handler_in_register<space, uint32_t>(movement, register_bytes);
    case 9: return handler_in_register<space, int32_t>(movement, register_bytes);
    default: return handler_in_register<space, uint64_t>(movement, register_bytes);
  }
}

// Takes the part of `text` up to the next dot, without it.
std::string_view take_part(std::string_view& text) {
  const size_t end = std::min(text.find('.'), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

}  // namespace

bool parse_movement(std::string_view opcode, Movement& movement) {
  std::string_view part = take_part(opcode);
  if (part != "ld" && part != "st") return false;
  movement = {};
  movement.is_load = part == "ld";
  part = take_part(opcode);
  if (part == "global") {
    part = take_part(opcode);
  } else if (part == "shared") {
    movement.space = Space::shared;
    movement.address_bytes = 4;
    part = take_part(opcode);
  } else if (part == "local") {
    movement.space = Space::local;
    part = take_part(opcode);
  } else if (part == "param" && movement.is_load) {
    movement.space = Space::parameter;
    part = take_part(opcode);
  }
  if (part == "nc" || part == "L1::no_allocate") part = take_part(opcode);
  if (part == "v2" || part == "v4") {
    movement.items = part[1] - '0';
    part = take_part(opcode);
  }
  constexpr std::array<std::string_view, 14> types = {"u8",  "s8",  "b8",  "u16", "s16", "b16", "u32",
                                                      "s32", "b32", "f32", "u64", "s64", "b64", "f64"};
  if (std::find(types.begin(), types.end(), part) == types.end() || !opcode.empty()) return false;
  movement.is_signed = part[0] == 's';
  movement.item_bytes = part.back() == '8' ? 1 : part.back() == '6' ? 2 : part.back() == '2' ? 4 : 8;
  return movement.items * movement.item_bytes <= 16;
}

Handler movement_handler(const Movement& movement, int register_bytes) {
  switch (movement.space) {
    case Space::global: return handler_in_space<Space::global>(movement, register_bytes);
    case Space::shared: return handler_in_space<Space::shared>(movement, register_bytes);
    case Space::local: return handler_in_space<Space::local>(movement, register_bytes);
    default: return handler_in_space<Space::parameter>(movement, register_bytes);
  }
}

void atomic_add_shared(const Instruction& instruction, Warp& warp, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    const uint64_t address = address_of<Space::shared>(instruction, warp, instruction.at[1], lane);
    std::byte* place = warp.shared->update(static_cast<uint32_t>(address), 8, warp.accessor(lane));
    uint64_t value = 0;
    std::memcpy(&value, place, sizeof value);
    const uint64_t sum = value + warp.at<const uint64_t>(instruction.at[2])[lane];
    std::memcpy(place, &sum, sizeof sum);
    warp.at<uint64_t>(instruction.at[0])[lane] = value;
  });
}

template <bool is_ordered>
void atomic_add_global(const Instruction& instruction, Warp& warp, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    const uint64_t address = address_of<Space::global>(instruction, warp, instruction.at[1], lane);
    std::byte* place = warp.global->update(address, 4, warp.thread(lane), is_ordered);
    uint32_t value = 0;
    std::memcpy(&value, place, sizeof value);
    const uint32_t sum = value + warp.at<const uint32_t>(instruction.at[2])[lane];
    std::memcpy(place, &sum, sizeof sum);
    warp.at<uint32_t>(instruction.at[0])[lane] = value;
  });
}
template void atomic_add_global<true>(const Instruction&, Warp&, uint32_t);
template void atomic_add_global<false>(const Instruction&, Warp&, uint32_t);

void copy_async(const Instruction& instruction, Warp& warp, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    AsyncCopies& copies = warp.copies[static_cast<size_t>(lane)];
    const uint32_t to = warp.at<const uint32_t>(instruction.at[0])[lane];
    const uint64_t from = warp.at<const uint64_t>(instruction.at[1])[lane];
    const uint32_t source_bytes = warp.at<const uint32_t>(instruction.at[3])[lane];
    if (source_bytes != 0 && source_bytes != 16) {
      throw_error(ErrorKind::unsupported, "an asynchronous copy of {} bytes is not supported", source_bytes);
    }
    if (source_bytes > 0) warp.global->check(from, source_bytes);
    warp.shared->start_copy(to, 16, warp.accessor(lane));
    copies.pending.push_back({to, from, source_bytes, copies.committed + 1});
  });
}

void commit_copies(const Instruction&, Warp& warp, uint32_t active) {
  for_each_lane(active, [&](int lane) { ++warp.copies[static_cast<size_t>(lane)].committed; });
}

void wait_copies(const Instruction& instruction, Warp& warp, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    AsyncCopies& copies = warp.copies[static_cast<size_t>(lane)];
    const int last = copies.committed - static_cast<int>(instruction.literal);
    auto pending = copies.pending.begin();
    for (; pending != copies.pending.end() && pending->group <= last; ++pending) {
      std::byte* to = warp.shared->finish_copy(pending->to, 16, warp.accessor(lane));
      std::memset(to, 0, 16);
      if (pending->source_bytes > 0) std::memcpy(to, warp.global->read(pending->from, 16, warp.thread(lane)), 16);
    }
    copies.pending.erase(copies.pending.begin(), pending);
  });
}

}  // namespace ingot::ptx
