// A stand-in for NCCL and RCCL, on simulated devices (host_collectives.cpp) or on the strict driver
// (strict_collectives.cpp). What its operations do: collective.h.
//
// On simulated devices a rank's data are taken when its call returns, after the work before it in the stream; its
// results come when the stream runs, later. The call of a message does not wait for messages before it.
// FAKE_NCCL_HANGS="rank operation" makes that operation of a communicator (the first is 0) never begin, and
// FAKE_NCCL_FAILS the same makes it fail.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/backend/gpu/fakes/collectives_driver.h"
#include "tests/backend/gpu/fakes/driver.h"
#include "tests/backend/gpu/fakes/live_objects.h"

namespace {

namespace fs = std::filesystem;
using namespace fake;
using Kind = Collective::Kind;

struct UniqueId {
  std::array<char, 128> folder;
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

struct Communicator {
  Folder folder{};
  int device = 0;
  CommunicatorStatus* status = nullptr;
  uint64_t started = 0;                                    // operations
  uint64_t calls = 0;                                      // of collective operations
  std::map<std::pair<bool, int>, uint64_t> messages = {};  // sent to and received from each rank
  bool new_call = false;                                   // whose completion has not been asked for
};

LiveObjects<Communicator> communicators;

bool lives(const Communicator* c) {
  return communicators.has(c) || misuse("%p is no communicator, or was destroyed", static_cast<const void*>(c));
}

bool names_call(const char* variable, const Communicator& c, uint64_t call) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return false;
  int rank = -1;
  uint64_t number = 0;
  std::istringstream(text) >> rank >> number;
  return rank == c.folder.rank && number == call;
}

thread_local int depth = 0;
struct Queued {
  Communicator* communicator;
  Collective call;
  const char* from;
  char* to;
  void* stream;
};
thread_local std::vector<Queued> queue;

int start_all() {
  const std::vector<Queued> calls = std::exchange(queue, {});
  if (calls.empty()) return success;
  Communicator& c = *calls.front().communicator;
  void* const stream = calls.front().stream;
  if (calls.size() > CollectiveGroup::max_operations) return invalid_usage;
  CollectiveGroup group{};
  group.folder = c.folder;
  group.status = c.status;
  std::vector<DeviceMemory> memory;
  for (const Queued& each : calls) {
    if (each.communicator != &c || each.stream != stream) return invalid_usage;
    const uint64_t operation = c.started++;
    if (names_call("FAKE_NCCL_FAILS", c, operation)) c.status->fail(system_error, "a link is down");
    group.hangs = group.hangs || names_call("FAKE_NCCL_HANGS", c, operation);
    const uint64_t number =
        each.call.is_message() ? c.messages[{each.call.kind == Kind::send, each.call.root}]++ : c.calls++;
    group.operations[group.count++] = {each.call, each.from, each.to, number};
    const size_t sent = each.call.sent_bytes(c.folder.rank, c.folder.ranks);
    const size_t received = each.call.received_bytes(c.folder.rank, c.folder.ranks);
    if (sent > 0) memory.push_back({each.from, sent});
    if (received > 0) memory.push_back({each.to, received});
  }
  if (!enqueue(c.device, stream, group, memory)) return invalid_usage;
  c.new_call = true;
  return in_progress;
}

int start(Communicator* communicator, Collective call, const void* from, void* to, void* stream) {
  if (!lives(communicator) || stream == nullptr) return invalid_argument;
  const Communicator& c = *communicator;
  if (c.status->get() != success) return invalid_usage;  // one that has failed, or is not ready
  const bool reduces = call.kind == Kind::all_reduce || call.kind == Kind::reduce_scatter || call.kind == Kind::reduce;
  if (width_of(call.type) == 0 || (reduces && (call.type < 2 || (call.op != 0 && call.op != 2))) || call.root < 0 ||
      call.root >= c.folder.ranks || (depth == 0 && call.is_message() && call.root == c.folder.rank) ||
      (call.count > 0 &&
       ((call.kind != Kind::receive && from == nullptr) || (call.kind != Kind::send && to == nullptr)))) {
    return invalid_argument;
  }
  queue.push_back({communicator, call, static_cast<const char*>(from), static_cast<char*>(to), stream});
  return depth > 0 ? success : start_all();
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int* version) {
  *version = 22803;
  return success;
}

EXPORT const char* ncclGetErrorString(int result) {
  switch (result) {
    case success: return "no error";
    case system_error: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case invalid_argument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case invalid_usage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case in_progress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

EXPORT const char* ncclGetLastError(Communicator* c) { return communicators.has(c) ? c->status->error : ""; }

EXPORT int ncclGetUniqueId(UniqueId* id) {
  const std::string pattern = (fs::temp_directory_path() / "fake-nccl-").string() + std::string(6, 'X');  // of mkdtemp
  if (pattern.size() >= id->folder.size()) return system_error;
  std::strcpy(id->folder.data(), pattern.c_str());
  return mkdtemp(id->folder.data()) == nullptr ? system_error : success;
}

EXPORT int ncclCommInitRankConfig(Communicator** communicator, int ranks, UniqueId id, int rank, Config* config) {
  if (rank < 0 || rank >= ranks || config == nullptr || config->magic != 0xcafebeef || config->version < 21800 ||
      config->blocking != 0) {
    return invalid_argument;
  }
  const int device = current_device();
  if (device < 0 || !may_allocate("a communicator is made")) return invalid_usage;
  const CommunicatorStatus status{in_progress, 0, {}};  // until all ranks have come
  auto* const shared = static_cast<CommunicatorStatus*>(share(&status, sizeof status));
  if (shared == nullptr) return system_error;
  Communicator* const c = communicators.add({{id.folder, rank, ranks}, device, shared});
  const std::string error = c->folder.post("start", nullptr, 0, nullptr, 0);
  if (!error.empty()) shared->fail(system_error, error);
  *communicator = c;
  return in_progress;
}

EXPORT int ncclCommGetAsyncError(Communicator* c, int* error) {
  if (!lives(c)) return invalid_argument;
  const int state = c->status->get();
  *error = std::exchange(c->new_call, false) ? static_cast<int>(in_progress) : state;
  if (state == in_progress && c->folder.have_all("start")) {
    for (int from = 0; from < c->folder.ranks; ++from) c->folder.take("start", from);
    c->status->start();
  }
  return success;
}

EXPORT int ncclCommFinalize(Communicator* c) {
  if (!lives(c)) return invalid_argument;
  c->new_call = true;
  return depth > 0 || c->status->get() != success ? invalid_usage : in_progress;
}

EXPORT int ncclCommDestroy(Communicator* c) {
  if (!communicators.remove(c)) return invalid_argument;
  std::error_code none;
  fs::remove(c->folder.path.data(), none);  // by the last one
  return success;
}

EXPORT int ncclCommAbort(Communicator* c) {
  if (depth > 0) return invalid_usage;
  if (!communicators.remove(c)) return invalid_argument;
  c->status->abort();
  std::error_code none;
  fs::remove_all(c->folder.path.data(), none);
  return success;
}

EXPORT int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Communicator* c, void* stream) {
  return start(c, {Kind::all_reduce, type, op, 0, count}, from, to, stream);
}
EXPORT int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, Communicator* c,
                             void* stream) {
  return start(c, {Kind::reduce_scatter, type, op, 0, count}, from, to, stream);
}
EXPORT int ncclAllGather(const void* from, void* to, size_t count, int type, Communicator* c, void* stream) {
  return start(c, {Kind::all_gather, type, 0, 0, count}, from, to, stream);
}
EXPORT int ncclReduce(const void* from, void* to, size_t count, int type, int op, int root, Communicator* c,
                      void* stream) {
  return start(c, {Kind::reduce, type, op, root, count}, from, to, stream);
}
EXPORT int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Communicator* c, void* stream) {
  return start(c, {Kind::broadcast, type, 0, root, count}, from, to, stream);
}

EXPORT int ncclSend(const void* from, size_t count, int type, int to, Communicator* c, void* stream) {
  return start(c, {Kind::send, type, 0, to, count}, from, nullptr, stream);
}
EXPORT int ncclRecv(void* to, size_t count, int type, int from, Communicator* c, void* stream) {
  return start(c, {Kind::receive, type, 0, from, count}, nullptr, to, stream);
}

EXPORT int ncclGroupStart() {
  ++depth;
  return success;
}
EXPORT int ncclGroupEnd() {
  if (depth == 0) return invalid_usage;
  return --depth > 0 ? static_cast<int>(success) : start_all();
}
