#include "tests/backend/gpu/fakes/collective.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

namespace fake {
namespace {

namespace fs = std::filesystem;
using Kind = Collective::Kind;

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

fs::path file_of(const Folder& folder, const std::string& name, int from, int to) {
  return fs::path(folder.path.data()) / (name + "." + std::to_string(from) + "." + std::to_string(to));
}

std::vector<char> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  std::error_code none;
  fs::remove(path, none);
  return bytes;
}

// Says that the receiver has come, without which nothing is sent.
std::string ready_of(const std::string& message) { return message + ".ready"; }

}  // namespace

size_t width_of(int type) {
  constexpr std::array<size_t, 9> widths{1, 1, 4, 4, 8, 8, 2, 4, 8};
  return type >= 0 && type < 9 && type != 6 ? widths[static_cast<size_t>(type)] : 0;
}

size_t Collective::sent_bytes(int rank, int ranks) const {
  if (kind == Kind::receive || (kind == Kind::broadcast && root != rank)) return 0;
  return kind == Kind::reduce_scatter ? bytes() * static_cast<size_t>(ranks) : bytes();
}

size_t Collective::received_bytes(int rank, int ranks) const {
  if (kind == Kind::send || (kind == Kind::reduce && root != rank)) return 0;
  return kind == Kind::all_gather ? bytes() * static_cast<size_t>(ranks) : bytes();
}

std::string Folder::post(const std::string& name, const void* head, size_t head_bytes, const void* data,
                         size_t bytes) const {
  const fs::path written = fs::path(path.data()) / (name + ".part" + std::to_string(rank));
  {
    std::ofstream file(written, std::ios::binary);
    file.write(static_cast<const char*>(head), static_cast<std::streamsize>(head_bytes));
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  }
  std::error_code error, none;
  for (int reader = 0; reader < ranks && !error; ++reader)
    fs::create_hard_link(written, file_of(*this, name, rank, reader), error);
  fs::remove(written, none);
  return error ? "another rank has ended: " + error.message() : "";
}

bool Folder::have_all(const std::string& name) const {
  std::error_code none;
  for (int from = 0; from < ranks; ++from) {
    if (!fs::exists(file_of(*this, name, from, rank), none)) return false;
  }
  return true;
}

std::vector<char> Folder::take(const std::string& name, int from) const {
  return bytes_of(file_of(*this, name, from, rank));
}

int CommunicatorStatus::get() const { return std::atomic_ref(const_cast<int&>(state)).load(); }
bool CommunicatorStatus::has_ended() const {
  const int now = get();
  return std::atomic_ref(const_cast<int&>(aborted)).load() != 0 || (now != success && now != in_progress);
}
void CommunicatorStatus::start() {
  int expected = in_progress;
  std::atomic_ref(state).compare_exchange_strong(expected, success);
}
void CommunicatorStatus::abort() { std::atomic_ref(aborted).store(1); }

void CommunicatorStatus::fail(Result result, const std::string& why) {
  error[why.copy(error, sizeof error - 1)] = '\0';
  std::atomic_ref(state).store(result);
}

CollectiveProgress::CollectiveProgress(const CollectiveGroup& group) : group_(group) {
  for (size_t i = 0; i < group.count; ++i) {
    const Operation& each = group.operations[i];
    const size_t bytes = each.call.sent_bytes(group.folder.rank, group.folder.ranks);
    (each.call.is_message() ? messages_ : collectives_).push_back(each);
    if (group.hangs) continue;
    if (each.call.kind == Kind::send) write(message_of(each), each.from, bytes);
    if (each.call.is_message()) continue;
    const std::string error =
        group.folder.post(std::to_string(each.number), &each.call, sizeof each.call, each.from, bytes);
    if (!error.empty()) group.status->fail(system_error, error);
  }
}

void CollectiveProgress::expect() {
  if (std::exchange(expects_, true) || group_.hangs || group_.status->has_ended()) return;
  for (const Operation& each : messages_) {
    if (each.call.kind == Kind::receive) write(ready_of(message_of(each)), nullptr, 0);
  }
}

bool CollectiveProgress::advance() {
  if (group_.status->has_ended()) return true;
  if (group_.hangs) return false;
  // Messages of a group go on independently of each other.
  std::erase_if(messages_, [&](const Operation& each) { return complete_message(each); });
  while (!collectives_.empty() && group_.folder.have_all(std::to_string(collectives_.front().number))) {
    complete(collectives_.front());
    collectives_.erase(collectives_.begin());
  }
  return messages_.empty() && collectives_.empty();
}

std::string CollectiveProgress::message_of(const Operation& operation) const {
  const bool sends = operation.call.kind == Kind::send;
  const int from = sends ? group_.folder.rank : operation.call.root,
            to = sends ? operation.call.root : group_.folder.rank;
  return file_of(group_.folder, "message." + std::to_string(operation.number), from, to);
}

// Publishes a file.
void CollectiveProgress::write(const std::string& path, const char* data, size_t bytes) const {
  const std::string written = path + ".part";
  std::ofstream(written, std::ios::binary).write(data, static_cast<std::streamsize>(bytes));
  std::error_code error;
  fs::rename(written, path, error);
  if (error) group_.status->fail(system_error, "another rank has ended: " + error.message());
}

// False while the other side has not come.
bool CollectiveProgress::complete_message(const Operation& operation) const {
  std::error_code none;
  const std::string message = message_of(operation);
  if (operation.call.kind == Kind::send) return fs::remove(ready_of(message), none);
  if (!fs::exists(message, none)) return false;
  const std::vector<char> bytes = bytes_of(message);
  if (bytes.size() != operation.call.bytes()) {
    group_.status->fail(invalid_usage, "a message has " + std::to_string(bytes.size()) + " bytes");
  } else {
    std::memcpy(operation.to, bytes.data(), bytes.size());
  }
  return true;
}

void CollectiveProgress::complete(const Operation& operation) const {
  const auto& [call, from_data, to, number] = operation;
  const auto ranks = static_cast<size_t>(group_.folder.ranks), rank = static_cast<size_t>(group_.folder.rank);
  const std::string name = std::to_string(number);
  std::vector<std::vector<char>> data;
  for (size_t from = 0; from < ranks; ++from) {
    std::vector<char> bytes = group_.folder.take(name, static_cast<int>(from));
    if (bytes.size() < sizeof call) return group_.status->fail(system_error, "another rank has ended");
    Collective theirs{};
    std::memcpy(static_cast<void*>(&theirs), bytes.data(), sizeof theirs);
    if (!(theirs == call)) {
      group_.status->fail(invalid_usage, "operation " + name + " differs on rank " + std::to_string(from));
    }
    bytes.erase(bytes.begin(), bytes.begin() + sizeof theirs);
    data.push_back(std::move(bytes));
  }
  if (group_.status->get() != success) return;
  const size_t bytes = call.bytes();
  const auto root = static_cast<size_t>(call.root);
  switch (call.kind) {
    case Kind::broadcast: std::memcpy(to, data[root].data(), bytes); return;
    case Kind::all_gather:
      for (size_t from = 0; from < ranks; ++from) std::memcpy(to + from * bytes, data[from].data(), bytes);
      return;
    default: break;
  }
  if (call.kind == Kind::reduce && root != rank) return;
  const size_t first = number % ranks;
  std::vector<char> sum = data[first];
  for (size_t i = 1; i < ranks; ++i)
    combine(sum.data(), data[(first + i) % ranks].data(), sum.size() / width_of(call.type), call.type, call.op);
  std::memcpy(to, sum.data() + (call.kind == Kind::reduce_scatter ? rank * bytes : 0), bytes);
}

void CollectiveGroup::run() const {
  CollectiveProgress progress(*this);
  progress.expect();
  while (!progress.advance()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace fake
