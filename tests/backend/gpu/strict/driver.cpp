#include "tests/backend/gpu/strict/driver.h"

#include <cstdio>

namespace strict {

thread_local int Driver::current_ = -1;
thread_local Stream* Driver::capturing_ = nullptr;

Driver::Driver(bool hip, const char* gpu_executable)
    : hip_(hip),
      settings_(settings_of_environment(hip)),
      base_(hip ? hip_base : cuda_base),
      gpu_(gpu_executable, settings_.architecture.starts_with("gfx9") ? 64 : 32, base_),
      device_memory_(base_, space_bytes),
      host_memory_(base_ + space_bytes, space_bytes),
      used_(static_cast<size_t>(settings_.devices)),
      default_streams_(used_.size()),
      contexts_(used_.size()) {}

Status Driver::retain_context(void** context, int device) {
  const Lock lock(mutex_);
  if (const Status failed = gpu_.status(); failed != success) return failed;
  const int ordinal = device - first_device;
  if (ordinal < 0 || ordinal >= settings_.devices) return misuse(invalid_device, "%d is no device's handle", device);
  Context*& own = contexts_[static_cast<size_t>(ordinal)];
  if (own == nullptr) own = objects_.add<Context>(ordinal);
  *context = own;
  return success;
}

Status Driver::set_context(void* context) {
  const Lock lock(mutex_);
  const Context* own = objects_.find<Context>(context);
  if (context != nullptr && own == nullptr) return misuse(invalid_context, "%p is no context", context);
  current_ = own != nullptr ? own->device : -1;
  return success;
}

Status Driver::set_device(int ordinal) {
  if (ordinal < 0 || ordinal >= settings_.devices) return invalid_device;
  current_ = ordinal;
  return success;
}

Status Driver::ready() const {
  if (const Status failed = gpu_.status(); failed != success) return failed;
  if (current_ < 0 && hip_) current_ = 0;  // HIP: the first device, in every thread that has chosen none
  return current_ < 0 ? misuse(invalid_context, "the calling thread has no current context") : success;
}

Status Driver::misuse(Status status, const char* text, ...) const {
  char line[512];
  va_list values;
  va_start(values, text);
  std::vsnprintf(line, sizeof line, text, values);
  va_end(values);
  const char* name = status_name(status, hip_);
  std::fprintf(stderr, "strict driver: %s (%s)\n", line, name != nullptr ? name : "?");
  return status;
}

Status Driver::invalidate(Stream& stream, Status status, const char* what) {
  stream.capture->valid = false;
  return misuse(status, "%s, which a captured stream must not", what);
}

Status Driver::refuse_in_capture(const char* what) {
  if (capturing_ == nullptr) return success;
  return invalidate(*capturing_, capture_unsupported, what);
}

Stream* Driver::stream_of(void* handle) {
  if (handle == nullptr) {
    Stream*& own = default_streams_[static_cast<size_t>(current_)];
    if (own == nullptr) {
      own = objects_.add<Stream>(current_);
      own->number = gpu_.make_stream();
    }
    return own;
  }
  Stream* stream = objects_.find<Stream>(handle);
  if (stream == nullptr) {
    misuse(invalid_handle, "%p is no stream, or was destroyed", handle);
    return nullptr;
  }
  if (stream->device != current_) {
    misuse(invalid_handle, "a stream of device %d is used while device %d is current", stream->device, current_);
    return nullptr;
  }
  return stream;
}

Status Driver::submit(Stream& stream, const Command& command) {
  if (stream.capture) {
    if (!stream.capture->valid) return capture_invalidated;
    stream.capture->commands.push_back(command);
    return success;
  }
  Command placed = command;
  placed.stream = stream.number;
  gpu_.add(placed);
  return gpu_.status();
}

// Without the lock, so that other threads go on meanwhile.
Status Driver::wait(Lock& lock, Mark mark) {
  lock.unlock();
  const Status status = gpu_.wait(mark);
  lock.lock();
  return status;
}

}  // namespace strict
