// MPI and the only thread that calls it: other threads hand jobs to it and wait for them. Outside of jobs it also sends
// and receives the notice that a rank has failed, so that no rank waits for one that will not answer.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/shared_library.h"
#include "comm/failure.h"
#include "comm/mpi.h"
#include "comm/mpi_jobs.h"
#include "comm/mpi_plugin.h"
#include "comm/roll_call.h"

namespace ingot::comm::mpi {

// A submitted job. Jobs of the same group and lane run one after the other: collective operations are one lane,
// messages to each rank another, messages from each rank a third. Shared by the waiting thread and MPI's thread, which
// may need it longer.
struct Entry {
  Entry(ingot_mpi_group* group, int lane, std::string what, std::unique_ptr<Job> job)
      : group(group), lane(lane), what(std::move(what)), job(std::move(job)) {}
  const ingot_mpi_group* const group;
  const int lane;
  const std::string what;

  struct Use {
    bool given_up = false;  // the user's memory must not be touched any more
  };
  Guarded<Use> use;  // locked while the user's memory is touched

  // Used by MPI's thread only.
  std::unique_ptr<Job> job;
  Request request;
  bool in_flight = false;  // a chunk has started and not ended
  double moved = 0;        // steady_seconds() of the last progress

  bool done = false;  // guarded by the lock of World::state_
};

// Public functions may be called by any thread. Once a rank has failed, begin(), wait() and finalize() throw: the error
// itself if it was this rank, else the failed rank's error with its rank (failure.h).
class World {
 public:
  // Starts the thread. Errors: unavailable when the plug-in cannot be loaded.
  explicit World(const Mpi& settings);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();  // joins the thread, which ends after finalize() or end_all()

  // Waits until MPI is initialised; must be called before any other function. The result lives as long as this object;
  // threads other than MPI's may only read its numbers. Errors: unavailable when MPI cannot be initialised or is not
  // the launcher's.
  const ingot_mpi& open();

  std::shared_ptr<Entry> begin(ingot_mpi_group* group, int lane, std::string what, std::unique_ptr<Job> job);
  // Errors besides: unavailable after settings.timeout_s without progress.
  void wait(const Entry& entry);

  // Transport::note and behind.
  void note(std::string activity);
  std::string behind();
  // Throws if a rank is known to have failed.
  void require_running();
  // Reports to the other ranks that this rank has failed. Of several failures the first counts.
  void fail(const Error& why) noexcept;

  // Ends MPI after success; returns when every rank has called it.
  void finalize();
  // After a failure: waits a few seconds for all other ranks to leave too. The rank that failed exits first: once a
  // process has exited, launchers end the others, and its error message must be visible by then.
  void leave();
  // Makes MPI end all processes, including this one.
  void end_all();

 private:
  // A message from one rank to all others, outside of their operations.
  struct Notice {
    // failed: a rank has. left: the sender has, after a failure. asks: the sender wants to know what the receiver does
    // (RollCall). answers: what the sender does.
    enum class Type : int32_t { failed, left, asks, answers } type;
    int32_t rank;                    // the rank that failed; else the sender
    int32_t kind;                    // ErrorKind of its error
    std::array<char, 2048> message;  // of the error, or the answer
    std::array<char, 512> hint;
  };
  struct State {
    std::deque<std::shared_ptr<Entry>> pending;  // not yet taken by MPI's thread
    std::optional<Failure> failure;
    bool opened = false;
    std::optional<Error> refused;  // why MPI could not be opened
    int ended = 0;                 // other ranks that have left after a failure
    enum class Command { work, finalize, report_end, end_all } command = Command::work;
    bool over = false;                     // MPI's thread has ended
    std::string note = RollCall::nothing;  // what this rank does outside of operations
    bool asks = false;                     // a thread waits for a roll call
    std::string behind;                    // its result
  };

  [[noreturn]] void rethrow(const Failure& failure) const;
  void end_all(const std::optional<Failure>& failure);
  void send_command(State::Command command);

  // Functions of MPI's thread.
  void run();
  void open_mpi();
  void gather_hosts();
  bool round();  // one pass over all pending work; false when it is over
  bool advance();
  bool advance(Entry& entry);
  void back_off(bool moved);
  void receive_notice();
  bool take_notice();
  void report(bool ended);  // to all other ranks
  void send_notice(const Notice& notice, int rank);
  void send_to_others(const Notice& notice);
  std::string activity();
  // Asks all other ranks at its first call. True when the roll call is over.
  bool calls_roll();
  void answer_asker();
  bool finalized();  // whether all ranks have called finalize(); MPI is then finalised

  const Mpi settings_;
  SharedLibrary library_;
  ingot_mpi_open_function* open_ = nullptr;
  const ingot_mpi* mpi_ = nullptr;
  Guarded<State> state_;

  // Used by MPI's thread only.
  std::deque<std::shared_ptr<Entry>> entries_;
  std::optional<Failure> failure_;
  ingot_mpi_group* notices_ = nullptr;
  Notice notice_{};
  Request notice_request_;
  std::vector<std::unique_ptr<std::pair<Notice, Request>>> sent_notices_;  // MPI reads these until the end
  Request last_;
  bool reported_ = false;
  bool reported_end_ = false;
  std::vector<std::string> hosts_;     // by rank
  std::optional<RollCall> roll_call_;  // under way, or the last one
  int64_t idle_ = 0;

  std::thread thread_;
};

}  // namespace ingot::comm::mpi
