#include "tests/backend/gpu/ptx/executor.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "base/error.h"

namespace ingot::ptx {
namespace {

// Lanes of a warp with the same program counter.
struct Group {
  size_t next = 0;  // instruction
  uint32_t mask = 0;
};

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t(64)); }
};

struct WarpRun {
  Warp warp;
  std::vector<Group> groups;
  bool at_block_barrier = false;
};

class Executor {
 public:
  Executor(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> parameters, GlobalMemory& memory,
           std::vector<uint8_t>& executed, int64_t max_instructions)
      : kernel_(kernel),
        shape_(shape),
        shared_(kernel.static_shared_bytes() + shape.dynamic_shared_bytes),
        memory_(memory),
        executed_(executed),
        instructions_left_(max_instructions),
        warps_(static_cast<size_t>((shape.threads + lanes - 1) / lanes)) {
    const size_t bytes = kernel.register_bytes();
    registers_.reset(new (std::align_val_t(64)) std::byte[bytes * warps_.size()]);
    std::fill_n(registers_.get(), bytes * warps_.size(), std::byte{0xff});
    local_.resize(kernel.local_bytes() * lanes * warps_.size());
    for (size_t i = 0; i < warps_.size(); ++i) {
      Warp& warp = warps_[i].warp;
      warp.local_bytes = kernel.local_bytes();
      warp.local = local_.data() + i * lanes * warp.local_bytes;
      warp.registers = registers_.get() + i * bytes;
      warp.register_bytes = bytes;
      warp.index = static_cast<int>(i);
      const int threads = std::min(shape.threads - warp.index * lanes, lanes);
      warp.exists = threads == lanes ? all_lanes : (1U << threads) - 1;
      warp.parameters = parameters;
      warp.global = &memory;
      warp.shared = &shared_;
      for (const Constant& constant : kernel.constants()) fill(warp, constant);
    }
  }

  void run_block(int64_t x, int64_t y) {
    shared_.start_block();
    memory_.start_block();
    std::fill(local_.begin(), local_.end(), std::byte{0xff});
    for (WarpRun& run : warps_) start(run, x, y);
    for (;;) {
      size_t waiting = 0;
      bool ended = false;
      for (WarpRun& run : warps_) {
        run.at_block_barrier = false;
        if (run.warp.live != 0) run_to_barrier(run);
        waiting += run.at_block_barrier ? 1 : 0;
        ended = ended || run.warp.live != run.warp.exists;
      }
      check_warpgroups();
      if (waiting == 0) return;
      if (ended) throw_error(ErrorKind::internal, "threads wait at a barrier of the block for threads that have ended");
      shared_.block_barrier();
      memory_.block_barrier();
    }
  }

  // Where the executor is, for messages.
  int warp() const { return current_warp_; }
  const Statement& statement() const { return kernel_.text().statements[current_instruction_]; }

 private:
  static void fill(const Warp& warp, const Constant& constant) {
    const auto write = [&](auto bits) { std::fill_n(warp.at<decltype(bits)>(constant.offset), lanes, bits); };
    switch (constant.bytes) {
      case 0: *warp.at<uint32_t>(constant.offset) = constant.bits != 0 ? all_lanes : 0; break;
      case 2: write(static_cast<uint16_t>(constant.bits)); break;
      case 4: write(static_cast<uint32_t>(constant.bits)); break;
      default: write(constant.bits);
    }
  }

  uint32_t value_of(SpecialRegister::Kind kind, int thread, int64_t x, int64_t y) const {
    switch (kind) {
      case SpecialRegister::Kind::tid_x: return static_cast<uint32_t>(thread);
      case SpecialRegister::Kind::ntid_x: return static_cast<uint32_t>(shape_.threads);
      case SpecialRegister::Kind::ctaid_x: return static_cast<uint32_t>(x);
      case SpecialRegister::Kind::ctaid_y: return static_cast<uint32_t>(y);
      default: return static_cast<uint32_t>(shape_.blocks_x);
    }
  }

  void start(WarpRun& run, int64_t x, int64_t y) const {
    Warp& warp = run.warp;
    warp.live = warp.exists;
    warp.copies = {};
    warp.products = {};
    run.groups = {{0, warp.exists}};
    for (const SpecialRegister& special : kernel_.special_registers()) {
      auto* values = warp.at<uint32_t>(special.offset);
      for (int lane = 0; lane < lanes; ++lane) {
        values[lane] = value_of(special.kind, warp.index * lanes + lane, x, y);
      }
    }
  }

  // Joins groups with equal program counters, and takes out the lowest one that need not wait for others; one without
  // lanes if there is none.
  Group take_next(WarpRun& run) const {
    std::vector<Group>& groups = run.groups;
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.next < b.next; });
    size_t count = 0;
    for (const Group& group : groups) {
      if (count > 0 && groups[count - 1].next == group.next) {
        groups[count - 1].mask |= group.mask;
      } else {
        groups[count++] = group;
      }
    }
    groups.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const Control control = kernel_.instructions()[groups[i].next].control;
      const bool together = control == Control::block_barrier || control == Control::warp_wide;
      if (together && groups[i].mask != run.warp.live) continue;
      const Group next = groups[i];
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(i));
      return next;
    }
    return {};
  }

  void run_to_barrier(WarpRun& run) {
    current_warp_ = run.warp.index;
    while (run.warp.live != 0 && !run.at_block_barrier) {
      const Group group = take_next(run);
      if (group.mask == 0) {
        current_instruction_ = run.groups[0].next;
        throw_error(ErrorKind::internal, "the lanes of the warp wait for each other at different instructions");
      }
      run_group(run, group);
    }
  }

  // The warps of a warpgroup make the same products (PTX ISA, "wgmma.mma_async").
  void check_warpgroups() {
    constexpr size_t warpgroup = 4;
    for (size_t i = 0; i < warps_.size(); ++i) {
      const uint64_t issued = warps_[i].warp.products.issued;
      const size_t first = i / warpgroup * warpgroup;
      const bool incomplete = issued != 0 && first + warpgroup > warps_.size();
      if (!incomplete && issued == warps_[first].warp.products.issued) continue;
      current_warp_ = static_cast<int>(i);
      throw_error(ErrorKind::internal, "the warps of a warpgroup do not make the same matrix products");
    }
  }

  // Runs a group until it ends, must wait, or may meet another group.
  void run_group(WarpRun& run, Group group) {
    Warp& warp = run.warp;
    for (bool first = true;; first = false) {
      const Instruction& instruction = kernel_.instructions()[group.next];
      current_instruction_ = group.next;
      const bool alone = group.mask == warp.live;
      if (instruction.leader && !first && !alone) break;
      if (--instructions_left_ < 0) throw_error(ErrorKind::internal, "the kernel does not end");
      uint32_t active = group.mask;
      if (instruction.guarded) {
        const uint32_t guard = *warp.at<const uint32_t>(instruction.guard);
        active &= instruction.guard_negated ? ~guard : guard;
      }
      executed_[group.next] |= active != 0 ? 1 : 0;
      switch (instruction.control) {
        case Control::none:
          if (active != 0) instruction.run(instruction, warp, active);
          ++group.next;
          continue;
        case Control::branch:
          if (active == group.mask) {
            group.next = instruction.target;
          } else if (active == 0) {
            ++group.next;
          } else {
            run.groups.push_back({instruction.target, active});
            group.mask &= ~active;
            ++group.next;
            run.groups.push_back(group);
            return;
          }
          continue;
        case Control::exit:
          warp.live &= ~active;
          group.mask &= ~active;
          ++group.next;
          if (group.mask == 0) return;
          continue;
        case Control::warp_wide:
        case Control::block_barrier:
          if (!alone) break;
          if (active != group.mask) throw_error(ErrorKind::internal, "some lanes of the warp do not take part");
          ++group.next;
          if (instruction.control == Control::warp_wide) {
            instruction.run(instruction, warp, active);
            continue;
          }
          run.at_block_barrier = true;
          break;
      }
      break;
    }
    run.groups.push_back(group);
  }

  const Kernel& kernel_;
  LaunchShape shape_;
  SharedMemory shared_;
  GlobalMemory& memory_;
  std::vector<uint8_t>& executed_;  // by instruction
  int64_t instructions_left_;
  std::unique_ptr<std::byte[], AlignedDelete> registers_;
  std::vector<std::byte> local_;
  std::vector<WarpRun> warps_;
  int current_warp_ = 0;
  size_t current_instruction_ = 0;
};

}  // namespace

void run(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> parameters, GlobalMemory& memory,
         std::vector<uint8_t>* executed, int64_t max_instructions) {
  const KernelText& text = kernel.text();
  if (shape.threads < 1 || shape.threads > text.max_threads) {
    throw_error(ErrorKind::usage, "{} threads are launched, and the kernel has up to {}", shape.threads,
                text.max_threads);
  }
  if (parameters.size() != text.parameter_bytes) {
    throw_error(ErrorKind::usage, "{} bytes of parameters are passed, and the kernel has {}", parameters.size(),
                text.parameter_bytes);
  }
  memory.start_launch();
  std::vector<uint8_t> unused(kernel.instructions().size());
  Executor executor(kernel, shape, parameters, memory, executed != nullptr ? *executed : unused, max_instructions);
  for (int64_t y = 0; y < shape.blocks_y; ++y) {
    for (int64_t x = 0; x < shape.blocks_x; ++x) {
      try {
        executor.run_block(x, y);
      } catch (const Error& error) {
        throw_error(error.kind(), "block {}, {}, warp {}, line {}, {}: {}", x, y, executor.warp(),
                    executor.statement().line, executor.statement().opcode, error.message());
      }
    }
  }
}

}  // namespace ingot::ptx
