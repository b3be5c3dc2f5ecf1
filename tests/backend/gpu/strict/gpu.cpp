#include "tests/backend/gpu/strict/gpu.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <string>

namespace strict {
namespace {

constexpr int socket_in_gpu = 3;  // descriptors in the GPU's process
constexpr int memory_in_gpu = 4;

// Starts the process with these two descriptors, in a group of its own, so that Ctrl-C does not end it.
bool start(const char* executable, int lanes, uintptr_t base, int socket, int memory) {
  // Above those that the child will have, so that none overwrites another.
  const int from_socket = fcntl(socket, F_DUPFD_CLOEXEC, 16);
  const int from_memory = fcntl(memory, F_DUPFD_CLOEXEC, 16);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, from_socket, socket_in_gpu);
  posix_spawn_file_actions_adddup2(&actions, from_memory, memory_in_gpu);
  posix_spawn_file_actions_addclosefrom_np(&actions, memory_in_gpu + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::string lanes_text = std::to_string(lanes);
  std::string base_text = std::to_string(base);
  std::string name = executable;
  char* const words[] = {name.data(), lanes_text.data(), base_text.data(), nullptr};
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, executable, &actions, &attributes, words, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(from_socket);
  close(from_memory);
  return failed == 0;
}

void* map(uintptr_t address, size_t bytes, int protection, int memory, off_t offset) {
  const int fixed = address != 0 ? MAP_FIXED_NOREPLACE : 0;
  void* mapped =
      mmap(std::bit_cast<void*>(address), bytes, protection, MAP_SHARED | MAP_NORESERVE | fixed, memory, offset);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

}  // namespace

Gpu::Gpu(const char* executable, int lanes, uintptr_t base) : owner_(getpid()) {
  int sockets[2] = {-1, -1};
  const int memory = memfd_create("strict driver", MFD_CLOEXEC);
  const bool made = memory >= 0 && ftruncate(memory, static_cast<off_t>(control_bytes + 2 * space_bytes)) == 0 &&
                    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0;
  control_ = static_cast<Control*>(map(0, control_bytes, PROT_READ | PROT_WRITE, memory, 0));
  if (!made || control_ == nullptr || map(base, 2 * space_bytes, PROT_NONE, memory, control_bytes) == nullptr ||
      !start(executable, lanes, base, sockets[1], memory)) {
    std::perror("strict driver: the GPU's process cannot be started");
    start_ = unknown;
  }
  ::close(sockets[1]);
  ::close(memory);
  socket_ = sockets[0];
}

Gpu::~Gpu() {
  if (getpid() == owner_) ::close(socket_);  // which ends the GPU's process
}

Status Gpu::status() const {
  if (start_ != success) return start_;
  if (getpid() != owner_) return not_initialized;  // a driver does not work in a forked child
  return control_->status.load();
}

void Gpu::send(const Command& command) {
  if (::send(socket_, &command, command.size(), MSG_NOSIGNAL) < 0 && control_->status == success) start_ = unknown;
}

Mark Gpu::add(const Command& command) {
  send(command);
  return {command.stream, ++added_[command.stream]};
}

bool Gpu::is_alive() const {
  pollfd ends{socket_, 0, 0};
  return poll(&ends, 1, 0) == 0;
}

Status Gpu::wait(Mark mark) const {
  for (;;) {
    const uint32_t seen = control_->progress.load();
    if (const Status failed = status(); failed != success) return failed;
    if (reached(mark)) return success;
    const timespec second{1, 0};
    syscall(SYS_futex, &control_->progress, FUTEX_WAIT, seen, &second, nullptr, 0);
    if (!is_alive() && control_->status == success) start_ = unknown;
  }
}

void Gpu::open(Pages pages) const { mprotect(std::bit_cast<void*>(pages.begin), pages.bytes, PROT_READ | PROT_WRITE); }
void Gpu::close(Pages pages) const { mprotect(std::bit_cast<void*>(pages.begin), pages.bytes, PROT_NONE); }

}  // namespace strict
