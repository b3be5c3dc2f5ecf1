// A stand-in for NCCL and RCCL on simulated devices. Ranks are threads or processes of one machine: what one sends is a
// file, in a folder that the communicator's id names. It is stricter than the libraries: it compares all ranks'
// arguments, and reports a difference as an asynchronous error. Sums of floating-point numbers begin with another rank
// at each operation, so that nothing that depends on the libraries' order agrees with the order of ranks.
//
// A rank's data are taken when its call returns, after the work before it in the stream. Its results come when the
// stream runs, later. A send is complete when the receiver's stream has come to the receive (rendezvous); the call of a
// message does not wait for messages before it. FAKE_NCCL_HANGS="rank operation" makes that operation of a
// communicator (the first is 0) never begin, and FAKE_NCCL_FAILS the same makes it fail.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/gpu/sim/host_stream.h"

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<char>;

enum Result { success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5, in_progress = 7 };

struct UniqueId {
  std::array<char, 128> folder;
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

// What all ranks must agree on.
struct Call {
  enum class Kind : int { all_reduce, reduce_scatter, all_gather, reduce, broadcast, send, receive } kind;
  int type, op, root;  // root: of messages the other rank
  size_t count;
  friend bool operator==(const Call&, const Call&) = default;
};

bool is_message(const Call& call) { return call.kind == Call::Kind::send || call.kind == Call::Kind::receive; }

struct Communicator {
  fs::path folder;
  int rank = 0, ranks = 1;
  uint64_t started = 0;                          // operations
  uint64_t calls = 0;                            // of collective operations
  std::map<std::pair<bool, int>, int> messages;  // sent to and received from each rank
  int state = in_progress;                       // until all ranks have come
  bool aborted = false;
  bool new_call = false;  // whose completion has not been asked for
  std::string last_error;
};

using Handle = std::shared_ptr<Communicator>;

size_t width_of(int type) {
  constexpr std::array<size_t, 9> widths{1, 1, 4, 4, 8, 8, 2, 4, 8};
  return type >= 0 && type < 9 && type != 6 ? widths[static_cast<size_t>(type)] : 0;
}

bool names_call(const char* variable, const Communicator& c, uint64_t call) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return false;
  int rank = -1;
  uint64_t number = 0;
  std::istringstream(text) >> rank >> number;
  return rank == c.rank && number == call;
}

void fail(Communicator& c, int state, std::string why) {
  c.state = state;
  c.last_error = std::move(why);
}

fs::path message_of(const Communicator& c, int from, int to, int number) {
  return c.folder / ("message." + std::to_string(from) + "." + std::to_string(to) + "." + std::to_string(number));
}
// Says that the receiver has come, without which nothing is sent.
fs::path ready_of(const fs::path& message) { return message.string() + ".ready"; }

// Publishes the file once for each rank that will read it.
void post(Communicator& c, const std::string& name, const void* head, size_t head_bytes, const void* data,
          size_t bytes) {
  const fs::path written = c.folder / (name + ".part" + std::to_string(c.rank));
  {
    std::ofstream file(written, std::ios::binary);
    file.write(static_cast<const char*>(head), static_cast<std::streamsize>(head_bytes));
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  }
  std::error_code error;
  for (int reader = 0; reader < c.ranks && !error; ++reader) {
    const fs::path link = c.folder / (name + "." + std::to_string(c.rank) + "." + std::to_string(reader));
    fs::create_hard_link(written, link, error);
  }
  if (error) fail(c, system_error, "another rank has ended: " + error.message());
  fs::remove(written, error);
}

fs::path file_of(const Communicator& c, const std::string& name, int from) {
  return c.folder / (name + "." + std::to_string(from) + "." + std::to_string(c.rank));
}

bool have_all(const Communicator& c, const std::string& name) {
  std::error_code none;
  for (int from = 0; from < c.ranks; ++from) {
    if (!fs::exists(file_of(c, name, from), none)) return false;
  }
  return true;
}

Bytes take(const Communicator& c, const std::string& name, int from) {
  const fs::path path = file_of(c, name, from);
  std::ifstream file(path, std::ios::binary);
  Bytes bytes((std::istreambuf_iterator<char>(file)), {});
  std::error_code none;
  fs::remove(path, none);
  return bytes;
}

template <class T>
void combine(char* into, const char* from, size_t count, int op) {
  for (size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, into + i * sizeof(T), sizeof(T));
    std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = op == 0 ? static_cast<T>(a + b) : std::max(a, b);
    std::memcpy(into + i * sizeof(T), &a, sizeof(T));
  }
}

void combine(char* into, const char* from, size_t count, int type, int op) {
  switch (type) {
    case 2: return combine<int32_t>(into, from, count, op);
    case 4: return combine<int64_t>(into, from, count, op);
    case 7: return combine<float>(into, from, count, op);
    case 8: return combine<double>(into, from, count, op);
    default: return;
  }
}

struct Started {
  Call call;
  std::string name;
  const char* from;
  char* to;
  uint64_t number;
};

// False while the other side has not come.
bool complete_message(Communicator& c, const Started& s) {
  std::error_code none;
  const bool sends = s.call.kind == Call::Kind::send;
  if (!fs::exists(sends ? ready_of(s.name) : fs::path(s.name), none)) return false;
  if (sends) return fs::remove(ready_of(s.name), none);
  std::ifstream file(s.name, std::ios::binary);
  const Bytes bytes((std::istreambuf_iterator<char>(file)), {});
  fs::remove(s.name, none);
  if (bytes.size() != s.call.count * width_of(s.call.type)) {
    fail(c, invalid_usage, "a message has " + std::to_string(bytes.size()) + " bytes");
  } else {
    std::memcpy(s.to, bytes.data(), bytes.size());
  }
  return true;
}

void complete(Communicator& c, const Started& s) {
  const auto ranks = static_cast<size_t>(c.ranks), rank = static_cast<size_t>(c.rank);
  std::vector<Bytes> data;
  for (size_t from = 0; from < ranks; ++from) {
    Bytes bytes = take(c, s.name, static_cast<int>(from));
    if (bytes.size() < sizeof(Call)) return fail(c, system_error, "another rank has ended");
    Call theirs{};
    std::memcpy(static_cast<void*>(&theirs), bytes.data(), sizeof theirs);
    if (!(theirs == s.call)) fail(c, invalid_usage, "operation " + s.name + " differs on rank " + std::to_string(from));
    bytes.erase(bytes.begin(), bytes.begin() + sizeof theirs);
    data.push_back(std::move(bytes));
  }
  if (c.state != success) return;
  const size_t bytes = s.call.count * width_of(s.call.type);
  const auto root = static_cast<size_t>(s.call.root);
  switch (s.call.kind) {
    case Call::Kind::broadcast: std::memcpy(s.to, data[root].data(), bytes); return;
    case Call::Kind::all_gather:
      for (size_t from = 0; from < ranks; ++from) std::memcpy(s.to + from * bytes, data[from].data(), bytes);
      return;
    default: break;
  }
  if (s.call.kind == Call::Kind::reduce && root != rank) return;
  const size_t first = s.number % ranks;
  Bytes sum = data[first];
  for (size_t i = 1; i < ranks; ++i) {
    combine(sum.data(), data[(first + i) % ranks].data(), sum.size() / width_of(s.call.type), s.call.type, s.call.op);
  }
  std::memcpy(s.to, sum.data() + (s.call.kind == Call::Kind::reduce_scatter ? rank * bytes : 0), bytes);
}

// Publishes a file.
void write(Communicator& c, const fs::path& path, const char* data, size_t bytes) {
  const fs::path written = path.string() + ".part";
  std::ofstream(written, std::ios::binary).write(data, static_cast<std::streamsize>(bytes));
  std::error_code error;
  fs::rename(written, path, error);
  if (error) fail(c, system_error, "another rank has ended: " + error.message());
}

// Begins the receives among the messages.
void expect(Communicator& c, const std::vector<Started>& messages) {
  for (const Started& each : messages) {
    if (each.call.kind == Call::Kind::receive) write(c, ready_of(each.name), nullptr, 0);
  }
}

thread_local int depth = 0;
struct Queued {
  Handle* communicator;
  Call call;
  const char* from;
  char* to;
  ingot::gpu::sim::HostStream* stream;
};
thread_local std::vector<Queued> queue;

int start_all() {
  std::vector<Queued> calls = std::move(queue);
  queue.clear();
  if (calls.empty()) return success;
  const Handle c = *calls.front().communicator;
  ingot::gpu::sim::HostStream* stream = calls.front().stream;
  bool begins = true;  // now, and not when the stream comes to it
  if (std::ranges::all_of(calls, [](const Queued& each) { return is_message(each.call); })) {
    begins = stream->prepare();
  } else {
    stream->finish();
  }
  std::vector<Started> started;
  bool hangs = false;
  for (const Queued& each : calls) {
    if (each.communicator != calls.front().communicator || each.stream != stream) return invalid_usage;
    const uint64_t operation = c->started++;
    if (names_call("FAKE_NCCL_FAILS", *c, operation)) fail(*c, system_error, "a link is down");
    hangs = hangs || names_call("FAKE_NCCL_HANGS", *c, operation);
    if (is_message(each.call)) {
      if (hangs) continue;
      const bool sends = each.call.kind == Call::Kind::send;
      const int other = each.call.root, next = c->messages[{sends, other}]++;
      const fs::path message = sends ? message_of(*c, c->rank, other, next) : message_of(*c, other, c->rank, next);
      if (sends) write(*c, message, each.from, each.call.count * width_of(each.call.type));
      started.push_back({each.call, message.string(), each.from, each.to, 0});
      continue;
    }
    const uint64_t number = c->calls++;
    const size_t bytes = each.call.count * width_of(each.call.type);
    const bool sends = each.call.kind != Call::Kind::broadcast || each.call.root == c->rank;
    const size_t sent = !sends                                         ? 0
                        : each.call.kind == Call::Kind::reduce_scatter ? bytes * static_cast<size_t>(c->ranks)
                                                                       : bytes;
    const std::string name = std::to_string(number);
    if (!hangs) post(*c, name, &each.call, sizeof each.call, each.from, sent);
    started.push_back({each.call, name, each.from, each.to, number});
  }
  std::vector<Started> messages;
  const auto sends_or_receives = [](const Started& each) { return is_message(each.call); };
  std::ranges::copy_if(started, std::back_inserter(messages), sends_or_receives);
  std::erase_if(started, sends_or_receives);
  if (begins) expect(*c, messages);
  stream->add([c, started, messages, next = size_t{0}, hangs, begins]() mutable {
    if (c->aborted || (c->state != success && c->state != in_progress)) return true;
    if (hangs) return false;
    if (!std::exchange(begins, true)) expect(*c, messages);
    // Messages of a group go on independently of each other.
    std::erase_if(messages, [&](const Started& each) { return complete_message(*c, each); });
    for (; next < started.size(); ++next) {
      if (!have_all(*c, started[next].name)) return false;
      complete(*c, started[next]);
    }
    return messages.empty();
  });
  c->new_call = true;
  return in_progress;
}

int start(Handle* communicator, Call call, const void* from, void* to, void* stream) {
  if (communicator == nullptr || stream == nullptr) return invalid_argument;
  Communicator& c = **communicator;
  if (c.state != success) return invalid_usage;  // one that has failed, or is not ready
  const bool reduces =
      call.kind == Call::Kind::all_reduce || call.kind == Call::Kind::reduce_scatter || call.kind == Call::Kind::reduce;
  if (width_of(call.type) == 0 || (reduces && (call.type < 2 || (call.op != 0 && call.op != 2))) || call.root < 0 ||
      call.root >= c.ranks || (depth == 0 && is_message(call) && call.root == c.rank) ||
      (call.count > 0 &&
       ((call.kind != Call::Kind::receive && from == nullptr) || (call.kind != Call::Kind::send && to == nullptr)))) {
    return invalid_argument;
  }
  queue.push_back({communicator, call, static_cast<const char*>(from), static_cast<char*>(to),
                   static_cast<ingot::gpu::sim::HostStream*>(stream)});
  return depth > 0 ? success : start_all();
}

}  // namespace

extern "C" {

extern const int ingot_simulates_nccl = 1;

int ncclGetVersion(int* version) {
  *version = 22803;
  return success;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case success: return "no error";
    case system_error: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case invalid_argument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case invalid_usage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case in_progress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(Handle* communicator) {
  return communicator == nullptr ? "" : (*communicator)->last_error.c_str();
}

int ncclGetUniqueId(UniqueId* id) {
  const std::string pattern = (fs::temp_directory_path() / "fake-nccl-").string() + std::string(6, 'X');  // of mkdtemp
  if (pattern.size() >= id->folder.size()) return system_error;
  std::strcpy(id->folder.data(), pattern.c_str());
  return mkdtemp(id->folder.data()) == nullptr ? system_error : success;
}

int ncclCommInitRankConfig(Handle** communicator, int ranks, UniqueId id, int rank, Config* config) {
  if (rank < 0 || rank >= ranks || config == nullptr || config->magic != 0xcafebeef || config->version < 21800 ||
      config->blocking != 0) {
    return invalid_argument;
  }
  auto c = std::make_shared<Communicator>();
  c->folder = id.folder.data();
  c->rank = rank;
  c->ranks = ranks;
  post(*c, "start", nullptr, 0, nullptr, 0);
  *communicator = new Handle(std::move(c));
  return in_progress;
}

int ncclCommGetAsyncError(Handle* communicator, int* error) {
  Communicator& c = **communicator;
  *error = std::exchange(c.new_call, false) ? static_cast<int>(in_progress) : c.state;
  if (c.state == in_progress && have_all(c, "start")) {
    c.state = success;
    for (int from = 0; from < c.ranks; ++from) take(c, "start", from);
  }
  return success;
}

int ncclCommFinalize(Handle* communicator) {
  Communicator& c = **communicator;
  c.new_call = true;
  return depth > 0 || c.state != success ? invalid_usage : in_progress;
}

int ncclCommDestroy(Handle* communicator) {
  std::error_code none;
  fs::remove((*communicator)->folder, none);  // by the last one
  delete communicator;
  return success;
}

int ncclCommAbort(Handle* communicator) {
  if (depth > 0) return invalid_usage;
  std::error_code none;
  (*communicator)->aborted = true;
  fs::remove_all((*communicator)->folder, none);
  delete communicator;
  return success;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Handle* c, void* stream) {
  return start(c, {Call::Kind::all_reduce, type, op, 0, count}, from, to, stream);
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, Handle* c, void* stream) {
  return start(c, {Call::Kind::reduce_scatter, type, op, 0, count}, from, to, stream);
}
int ncclAllGather(const void* from, void* to, size_t count, int type, Handle* c, void* stream) {
  return start(c, {Call::Kind::all_gather, type, 0, 0, count}, from, to, stream);
}
int ncclReduce(const void* from, void* to, size_t count, int type, int op, int root, Handle* c, void* stream) {
  return start(c, {Call::Kind::reduce, type, op, root, count}, from, to, stream);
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Handle* c, void* stream) {
  return start(c, {Call::Kind::broadcast, type, 0, root, count}, from, to, stream);
}

int ncclSend(const void* from, size_t count, int type, int to, Handle* c, void* stream) {
  return start(c, {Call::Kind::send, type, 0, to, count}, from, nullptr, stream);
}
int ncclRecv(void* to, size_t count, int type, int from, Handle* c, void* stream) {
  return start(c, {Call::Kind::receive, type, 0, from, count}, nullptr, to, stream);
}

int ncclGroupStart() {
  ++depth;
  return success;
}
int ncclGroupEnd() { return --depth > 0 ? static_cast<int>(success) : start_all(); }

}  // extern "C"
