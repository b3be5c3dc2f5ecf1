// Memory: CUDA Driver API, "Memory Management" and "API synchronization behavior"; HIP Runtime API, "Memory
// Management".
#include <bit>
#include <cstring>

#include "tests/backend/gpu/strict/driver.h"

namespace strict {
namespace {

uintptr_t address_of(const void* data) { return std::bit_cast<uintptr_t>(data); }
void* pointer_to(uintptr_t address) { return std::bit_cast<void*>(address); }

Command about_pages(CommandKind kind, uintptr_t data, size_t bytes, bool fill) {
  Command command;
  command.kind = kind;
  command.to = data;
  command.bytes = bytes;
  command.value = fill ? 1 : 0;
  return command;
}

Command copy(const void* from, const void* to, size_t bytes) {
  Command command;
  command.kind = CommandKind::copy;
  command.from = address_of(from);
  command.to = address_of(to);
  command.bytes = bytes;
  return command;
}

}  // namespace

bool Driver::is_page_locked(const void* data) const { return address_of(data) - (base_ + space_bytes) < space_bytes; }

bool Driver::check_device_range(const void* data, size_t bytes) const {
  const AddressSpace::Allocation* allocation = device_memory_.around(address_of(data), bytes);
  if (allocation != nullptr && allocation->device == current_) return true;
  misuse(invalid_value, "%zu bytes at %p are not within one allocation of device %d", bytes, data, current_);
  return false;
}

Status Driver::memory_info(size_t* free, size_t* total) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  *total = settings_.memory;
  *free = settings_.memory - used_[static_cast<size_t>(current_)];
  return success;
}

Status Driver::allocate(void** data, size_t bytes) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (const Status failed = refuse_in_capture("memory is allocated"); failed != success) return failed;
  if (bytes == 0) {
    *data = nullptr;
    return hip_ ? success : misuse(invalid_value, "no bytes are allocated");
  }
  size_t& used = used_[static_cast<size_t>(current_)];
  if (bytes > settings_.memory - used) return out_of_memory;
  const uintptr_t address = device_memory_.add(bytes, current_);
  if (address == 0) return out_of_memory;
  used += bytes;
  gpu_.send(about_pages(CommandKind::map, address, bytes, true));
  *data = pointer_to(address);
  return success;
}

// hipFree waits for the device; of cuMemFree this is not documented.
Status Driver::release(void* data) {
  Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (const Status failed = refuse_in_capture("memory is freed"); failed != success) return failed;
  if (data == nullptr && hip_) return success;
  const AddressSpace::Allocation* found = device_memory_.at(address_of(data));
  if (found == nullptr) return misuse(invalid_value, "%p is freed, which is no allocation, or was freed", data);
  const AddressSpace::Allocation allocation = *found;
  device_memory_.remove(address_of(data));
  if (hip_) {
    std::vector<Mark> marks;
    objects_.for_each_stream(allocation.device, [&](const Stream& each) { marks.push_back(gpu_.mark(each.number)); });
    for (const Mark mark : marks) {
      if (const Status failed = wait(lock, mark); failed != success) return failed;
    }
  }
  used_[static_cast<size_t>(allocation.device)] -= allocation.bytes;
  gpu_.send(about_pages(CommandKind::unmap, address_of(data), allocation.bytes, true));
  return success;
}

uintptr_t Driver::stage(size_t bytes) {
  const uintptr_t data = host_memory_.add(bytes, current_);
  if (data == 0) return 0;
  gpu_.send(about_pages(CommandKind::map, data, bytes, false));
  gpu_.open(pages_of(data, bytes));
  std::memset(pointer_to(data), 0xff, bytes);
  return data;
}

void Driver::unstage(uintptr_t data) {
  const size_t bytes = host_memory_.at(data)->bytes;
  gpu_.close(pages_of(data, bytes));
  gpu_.send(about_pages(CommandKind::unmap, data, bytes, false));
  host_memory_.remove(data);
}

void Driver::free_staged(Stream& stream) {
  std::erase_if(stream.staged, [&](const auto& each) {
    const bool done = gpu_.reached(each.first);
    if (done) unstage(each.second);
    return done;
  });
}

Status Driver::allocate_host(void** data, size_t bytes, unsigned flags) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (const Status failed = refuse_in_capture("host memory is allocated"); failed != success) return failed;
  if (flags != 0 || bytes == 0) return misuse(invalid_value, "%zu bytes of host memory with flags %u", bytes, flags);
  const uintptr_t address = stage(bytes);
  *data = pointer_to(address);
  return address == 0 ? out_of_memory : success;
}

Status Driver::release_host(void* data) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (const Status failed = refuse_in_capture("host memory is freed"); failed != success) return failed;
  if (data == nullptr && hip_) return success;
  if (host_memory_.at(address_of(data)) == nullptr) {
    return misuse(invalid_value, "%p is freed, which is no page-locked memory, or was freed", data);
  }
  unstage(address_of(data));
  return success;
}

Status Driver::fill(void* data, unsigned char value, size_t bytes, void* stream_handle) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  Stream* stream = stream_of(stream_handle);
  if (stream == nullptr) return invalid_handle;
  if (!check_device_range(data, bytes)) return invalid_value;
  Command command;
  command.kind = CommandKind::fill;
  command.to = address_of(data);
  command.bytes = bytes;
  command.value = value;
  return submit(*stream, command);
}

// Page-locked memory is read when the copy runs. Pageable memory is copied to page-locked memory before the call
// returns.
Status Driver::copy_to_device(void* to, const void* from, size_t bytes, void* stream_handle) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  Stream* stream = stream_of(stream_handle);
  if (stream == nullptr) return invalid_handle;
  if (!check_device_range(to, bytes)) return invalid_value;
  free_staged(*stream);
  if (is_page_locked(from)) {
    if (host_memory_.around(address_of(from), bytes) == nullptr) {
      return misuse(invalid_value, "%zu bytes at %p are not within one allocation of page-locked memory", bytes, from);
    }
    return submit(*stream, copy(from, to, bytes));
  }
  if (stream->capture) return invalidate(*stream, capture_unsupported, "pageable memory is copied");
  const uintptr_t staged = stage(bytes);
  if (staged == 0) return out_of_memory;
  std::memcpy(pointer_to(staged), from, bytes);
  const Status status = submit(*stream, copy(pointer_to(staged), to, bytes));
  stream->staged.emplace_back(gpu_.mark(stream->number), staged);
  return status;
}

// To page-locked memory, which holds 0xff bytes until the copy has run. A copy to pageable memory has run when the call
// returns.
Status Driver::copy_to_host(void* to, const void* from, size_t bytes, void* stream_handle) {
  Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  Stream* stream = stream_of(stream_handle);
  if (stream == nullptr) return invalid_handle;
  if (!check_device_range(from, bytes)) return invalid_value;
  if (is_page_locked(to)) {
    if (host_memory_.around(address_of(to), bytes) == nullptr) {
      return misuse(invalid_value, "%zu bytes at %p are not within one allocation of page-locked memory", bytes, to);
    }
    if (!stream->capture) std::memset(to, 0xff, bytes);
    return submit(*stream, copy(from, to, bytes));
  }
  if (stream->capture) return invalidate(*stream, capture_unsupported, "pageable memory is copied");
  const uintptr_t staged = stage(bytes);
  if (staged == 0) return out_of_memory;
  submit(*stream, copy(from, pointer_to(staged), bytes));
  const Status status = wait(lock, gpu_.mark(stream->number));
  if (status == success) std::memcpy(to, pointer_to(staged), bytes);
  unstage(staged);
  return status;
}

}  // namespace strict
