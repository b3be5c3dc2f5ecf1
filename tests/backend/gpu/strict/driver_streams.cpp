// Streams, events and graphs: CUDA Driver API, "Stream Management", "Event Management" and "Graph Management".
#include "tests/backend/gpu/strict/driver.h"

namespace strict {

Status Driver::stream_priorities(int* lowest, int* highest) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  *lowest = lowest_priority();
  *highest = highest_priority();
  return success;
}

Status Driver::make_stream(void** stream, unsigned flags, int priority) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (flags != 1) return misuse(invalid_value, "a stream with flags %u; only non-blocking ones (1) exist here", flags);
  if (priority > lowest_priority() || priority < highest_priority())  // real drivers clamp it
    return misuse(invalid_value, "a stream's priority of %d, outside %d to %d", priority, lowest_priority(),
                  highest_priority());
  const uint32_t number = gpu_.make_stream();
  if (number == max_streams) return out_of_memory;
  auto* made = objects_.add<Stream>(current_);
  made->number = number;
  *stream = made;
  return success;
}

Status Driver::destroy_stream(void* handle) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  Stream* stream = stream_of(handle);
  if (stream == nullptr || handle == nullptr) return invalid_handle;
  if (stream->capture) return misuse(illegal_state, "a stream is destroyed while it is captured");
  stream->live = false;  // its work goes on
  return success;
}

Status Driver::synchronize_stream(void* handle) {
  Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return invalid_handle;
  if (stream->capture) return invalidate(*stream, capture_unsupported, "the host waits for the stream");
  const Status status = wait(lock, gpu_.mark(stream->number));
  if (status == success) free_staged(*stream);
  return status;
}

Status Driver::make_event(void** event, unsigned flags) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (flags > 3) return misuse(invalid_value, "an event with flags %u", flags);
  *event = objects_.add<Event>(current_);
  return success;
}

Status Driver::destroy_event(void* handle) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  Event* event = objects_.find<Event>(handle);
  if (event == nullptr) return misuse(invalid_handle, "%p is no event, or was destroyed", handle);
  event->live = false;
  return success;
}

Status Driver::record(void* handle, void* stream_handle) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  Event* event = objects_.find<Event>(handle);
  if (event == nullptr) return misuse(invalid_handle, "%p is no event, or was destroyed", handle);
  Stream* stream = stream_of(stream_handle);
  if (stream == nullptr) return invalid_handle;
  if (event->device != stream->device) return misuse(invalid_handle, "event and stream are of different devices");
  if (stream->capture) return invalidate(*stream, capture_unsupported, "an event is recorded (here)");
  event->recorded = gpu_.mark(stream->number);
  return success;
}

Status Driver::wait_in_stream(void* stream_handle, void* handle, unsigned flags) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (flags != 0) return misuse(invalid_value, "a wait with flags %u", flags);
  Stream* stream = stream_of(stream_handle);
  if (stream == nullptr) return invalid_handle;
  const Event* event = objects_.find<Event>(handle);
  if (event == nullptr) return misuse(invalid_handle, "%p is no event, or was destroyed", handle);
  if (stream->capture) return invalidate(*stream, capture_isolation, "the stream waits for work that is not captured");
  if (!event->recorded) return success;
  Command command;
  command.kind = CommandKind::wait;
  command.other = event->recorded->stream;
  command.number = event->recorded->number;
  return submit(*stream, command);
}

Status Driver::query(void* handle) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  const Event* event = objects_.find<Event>(handle);
  if (event == nullptr) return misuse(invalid_handle, "%p is no event, or was destroyed", handle);
  return !event->recorded || gpu_.reached(*event->recorded) ? success : not_ready;
}

Status Driver::synchronize_event(void* handle) {
  Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  const Event* event = objects_.find<Event>(handle);
  if (event == nullptr) return misuse(invalid_handle, "%p is no event, or was destroyed", handle);
  if (const Status failed = refuse_in_capture("the host waits for an event"); failed != success) return failed;
  return event->recorded ? wait(lock, *event->recorded) : success;
}

Status Driver::begin_capture(void* handle, int mode) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (handle == nullptr) return misuse(capture_unsupported, "the default stream is captured");
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return invalid_handle;
  if (mode != 1) return misuse(invalid_value, "a capture of mode %d; only that of a thread (1) exists here", mode);
  if (stream->capture || capturing_ != nullptr) return misuse(illegal_state, "a capture begins within a capture");
  stream->capture = Capture{std::this_thread::get_id(), {}, true};
  capturing_ = stream;
  return success;
}

Status Driver::end_capture(void* handle, void** graph) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  *graph = nullptr;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return invalid_handle;
  if (!stream->capture) return misuse(illegal_state, "a capture ends that was not started");
  if (stream->capture->thread != std::this_thread::get_id()) {
    return misuse(capture_wrong_thread, "a capture ends in another thread than it began in");
  }
  const Capture capture = std::move(*stream->capture);
  stream->capture.reset();
  capturing_ = nullptr;
  if (!capture.valid) return capture_invalidated;
  auto* made = objects_.add<Graph>(current_);
  made->commands = capture.commands;
  *graph = made;
  return success;
}

// Of the nodes only their number.
Status Driver::graph_nodes(void* handle, void** nodes, size_t* count) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  const Graph* graph = objects_.find<Graph>(handle);
  if (graph == nullptr) return misuse(invalid_handle, "%p is no graph, or was destroyed", handle);
  if (nodes != nullptr)
    return misuse(invalid_value, "the nodes of a graph are requested; only their number exists here");
  *count = graph->commands.size();
  return success;
}

Status Driver::instantiate(void** executable, void* handle, unsigned long long flags) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  const Graph* graph = objects_.find<Graph>(handle);
  if (graph == nullptr) return misuse(invalid_handle, "%p is no graph, or was destroyed", handle);
  if (flags != 0) return misuse(invalid_value, "a graph is instantiated with flags %llu", flags);
  auto* made = objects_.add<ExecutableGraph>(graph->device);
  made->commands = graph->commands;
  *executable = made;
  return success;
}

Status Driver::destroy_graph(void* handle) {
  const Lock lock(mutex_);
  Graph* graph = objects_.find<Graph>(handle);
  if (graph == nullptr) return misuse(invalid_handle, "%p is no graph, or was destroyed", handle);
  graph->live = false;
  return success;
}

Status Driver::launch_graph(void* handle, void* stream_handle) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  const ExecutableGraph* graph = objects_.find<ExecutableGraph>(handle);
  if (graph == nullptr) return misuse(invalid_handle, "%p is no executable graph, or was destroyed", handle);
  Stream* stream = stream_of(stream_handle);
  if (stream == nullptr) return invalid_handle;
  if (stream->capture) return invalidate(*stream, capture_unsupported, "a graph is launched (here)");
  for (const Command& command : graph->commands) {
    if (const Status failed = submit(*stream, command); failed != success) return failed;
  }
  return success;
}

Status Driver::destroy_executable(void* handle) {
  const Lock lock(mutex_);
  ExecutableGraph* graph = objects_.find<ExecutableGraph>(handle);
  if (graph == nullptr) return misuse(invalid_handle, "%p is no executable graph, or was destroyed", handle);
  graph->live = false;
  return success;
}

}  // namespace strict
