// The operations of the stand-in for NCCL and RCCL, by value. Ranks are threads or processes of one machine: what one
// sends is a file, in a folder that the communicator's id names. It is stricter than the libraries: it compares all
// ranks' arguments, and reports a difference as an asynchronous error. Sums of floating-point numbers begin with
// another rank at each operation, so that nothing that depends on the libraries' order agrees with the order of ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake {

// ncclResult_t
enum Result { success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5, in_progress = 7 };

// Bytes of one number of an ncclDataType_t; 0 for a type that does not exist here.
size_t width_of(int type);

// What all ranks must agree on.
struct Collective {
  enum class Kind : int { all_reduce, reduce_scatter, all_gather, reduce, broadcast, send, receive } kind;
  int type, op, root;  // root: of messages the other rank
  size_t count;
  friend bool operator==(const Collective&, const Collective&) = default;

  bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
  size_t bytes() const { return count * width_of(type); }
  // Bytes that one of `ranks` ranks sends and receives.
  size_t sent_bytes(int rank, int ranks) const;
  size_t received_bytes(int rank, int ranks) const;
};

// One rank's place among those of a communicator, and their files.
struct Folder {
  std::array<char, 128> path;
  int rank, ranks;

  // Publishes a file for each rank. The error, empty for none.
  std::string post(const std::string& name, const void* head, size_t head_bytes, const void* data, size_t bytes) const;
  // Whether all ranks have published it; what one has.
  bool have_all(const std::string& name) const;
  std::vector<char> take(const std::string& name, int from) const;
};

// Of a communicator, in memory that library and device share: accesses are atomic.
struct CommunicatorStatus {
  int state;        // a Result
  int aborted;      // 1: operations end at once, as they do after an error
  char error[256];  // written before `state`

  int get() const;
  bool has_ended() const;
  void start();  // all ranks have come
  void abort();
  void fail(Result result, const std::string& why);
};

// Operations that become one.
struct CollectiveGroup {
  static constexpr const char* name = "NCCL group";
  static constexpr size_t max_operations = 48;
  struct Operation {
    Collective call;
    const char* from;
    char* to;
    uint64_t number;  // of the communicator's collectives, or of the messages from one rank to another
  };

  Folder folder;
  CommunicatorStatus* status;
  bool hangs;  // never begins
  size_t count;
  Operation operations[max_operations];

  // Returns when all of it is done.
  void run() const;
};

// A group that is under way.
class CollectiveProgress {
 public:
  // Takes this rank's data and sends them.
  explicit CollectiveProgress(const CollectiveGroup& group);
  // Starts the receives, without which nothing arrives: a send is complete when its receive has started (rendezvous).
  void expect();
  // Assigns the results that are there. Returns whether the group has ended.
  bool advance();

 private:
  using Operation = CollectiveGroup::Operation;
  std::string message_of(const Operation& operation) const;
  bool complete_message(const Operation& operation) const;
  void complete(const Operation& operation) const;
  void write(const std::string& path, const char* data, size_t bytes) const;

  CollectiveGroup group_;
  std::vector<Operation> messages_, collectives_;  // that have not ended
  bool expects_ = false;
};

}  // namespace fake
