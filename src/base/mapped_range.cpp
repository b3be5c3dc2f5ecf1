#include "base/mapped_range.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>

#include "base/error.h"
#include "base/mutex.h"

namespace ingot {
namespace {

// A range that the signal handler looks up. The handler reads without a lock: a slot is valid while `begin` is not 0,
// and a thread that reads a range keeps it mapped.
struct Slot {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<std::atomic<bool>*> faulty{nullptr};
  const std::filesystem::path* path = nullptr;  // not used by the handler
};

// Blocks are never freed, as a handler may be reading them.
struct Block {
  std::array<Slot, 64> slots;
  std::atomic<Block*> next{nullptr};
};

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may not lock");

Block first_block;
std::atomic<uintptr_t> page_bytes{4096};
std::atomic<bool> any_fault{false};
struct sigaction former;
Mutex changing;                     // guards changes of slots and of gone_fault
std::string* gone_fault = nullptr;  // the path of a faulty file that is no longer mapped

// Maps zeros from the page of `address` to the end of its range. False when it is in no range or mapping fails.
bool fill_with_zeros(uintptr_t address) {
  for (Block* block = &first_block; block != nullptr; block = block->next) {
    for (Slot& slot : block->slots) {
      const uintptr_t begin = slot.begin;
      const uintptr_t end = slot.end;
      std::atomic<bool>* faulty = slot.faulty;
      if (begin == 0 || address < begin || address >= end || slot.begin != begin) continue;
      any_fault = true;
      *faulty = true;
      const uintptr_t page = address / page_bytes * page_bytes;
      // The system call itself, because sanitizers' wrappers are not async-signal-safe.
      return ::syscall(SYS_mmap, page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                       -1, 0) != -1;
    }
  }
  return false;
}

extern "C" void ingot_on_bus_error(int number, siginfo_t* info, void* context) {
  const int code = errno;
  // si_code > 0: raised by a fault, not sent by a process.
  const bool done = info->si_code > 0 && fill_with_zeros(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = code;
  if (done) return;
  if ((former.sa_flags & SA_SIGINFO) != 0) return former.sa_sigaction(number, info, context);
  if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) return former.sa_handler(number);
  ::sigaction(number, &former, nullptr);
  ::raise(number);
}

void install_handler() {
  page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_sigaction = ingot_on_bus_error;
  ::sigaction(SIGBUS, &action, &former);
}

Slot* free_slot() {
  for (Block* block = &first_block;; block = block->next) {
    const auto found =
        std::find_if(block->slots.begin(), block->slots.end(), [](const Slot& s) { return s.begin == 0; });
    if (found != block->slots.end()) return &*found;
    if (block->next == nullptr) block->next = new Block;
  }
}

void guard(std::span<const std::byte> bytes, const std::filesystem::path& path, std::atomic<bool>* faulty) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  const MutexLock lock(changing);
  Slot* slot = free_slot();
  slot->end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
  slot->faulty = faulty;
  slot->path = &path;
  slot->begin = reinterpret_cast<uintptr_t>(bytes.data());
}

void unguard(const std::byte* data, bool faulty) noexcept {
  const MutexLock lock(changing);
  for (Block* block = &first_block; block != nullptr; block = block->next) {
    for (Slot& slot : block->slots) {
      if (slot.begin != reinterpret_cast<uintptr_t>(data)) continue;
      if (faulty && gone_fault == nullptr) {
        try {
          gone_fault = new std::string(slot.path->string());
        } catch (const std::bad_alloc&) {
          gone_fault = nullptr;  // any_fault still records that there was one
        }
      }
      slot.begin = 0;
    }
  }
}

// The path of the first faulty file that is found.
std::string faulty_path() {
  const MutexLock lock(changing);
  if (gone_fault != nullptr) return *gone_fault;
  for (Block* block = &first_block; block != nullptr; block = block->next) {
    for (const Slot& slot : block->slots) {
      if (slot.begin != 0 && *slot.faulty.load()) return slot.path->string();
    }
  }
  return "a mapped file";
}

}  // namespace

MappedRange::MappedRange(int file, const struct stat& info, std::filesystem::path path)
    : path_(std::move(path)), info_(info) {
  const auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) {
    throw_error(ErrorKind::resource, "{}: cannot map {} bytes: {}", path_.string(), size, errno_message(errno));
  }
  data_ = static_cast<const std::byte*>(data);
  try {
    guard(bytes(), path_, &faulty_);
  } catch (...) {
    ::munmap(data, size);
    throw;
  }
}

MappedRange::~MappedRange() {
  unguard(data_, faulty_);
  ::munmap(const_cast<std::byte*>(data_), bytes().size());
}

void check_mapped_files() {
  if (!any_fault) return;
  throw_hint(ErrorKind::corrupt, "restore the complete file and restart",
             "{}: it was truncated while it was being read, or its storage cannot be read", faulty_path());
}

}  // namespace ingot
