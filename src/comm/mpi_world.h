// MPI and the only thread that calls it: jobs are handed to it, and waited for. It also carries, outside of jobs, the
// word that a rank has failed, so that nobody waits for what does not come.
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

namespace ingot::comm::mpi {

// A job on its way. Those of a group's lane are done one after the other: collective operations are one lane, messages
// to a rank another, those from it a third. Shared by who waits for it and MPI's thread, which may need it for longer.
struct Entry {
  Entry(ingot_mpi_group* group, int lane, std::string what, std::unique_ptr<Job> job)
      : group(group), lane(lane), what(std::move(what)), job(std::move(job)) {}
  const ingot_mpi_group* const group;
  const int lane;
  const std::string what;

  struct Use {
    bool given_up = false;  // the user's memory is gone
  };
  Guarded<Use> use;  // held while the user's memory is touched

  // Of MPI's thread.
  std::unique_ptr<Job> job;
  Request request;
  bool in_flight = false;  // a piece has begun and not ended
  double moved = 0;        // steady seconds when it got further

  bool done = false;  // under the world's lock
};

// Public functions may be called by any thread. Once a rank has failed, here or elsewhere, begin(), wait() and
// finalize() throw: here the error itself, of another rank its error with that rank's name (failure.h).
class World {
 public:
  // Starts the thread. Errors: unavailable when the plug-in cannot be loaded.
  explicit World(const Mpi& settings);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();  // waits for the thread, which ends after finalize() or end_all()

  // Waits until MPI is there; before that nothing else is called. What it gives lives as long as this, and of it other
  // threads use the numbers only. Errors: unavailable when MPI cannot be initialised or is another than the launcher's.
  const ingot_mpi& open();

  std::shared_ptr<Entry> begin(ingot_mpi_group* group, int lane, std::string what, std::unique_ptr<Job> job);
  // Errors besides: unavailable after settings.timeout_s without a move.
  void wait(const Entry& entry);

  // This rank has failed; the others are told. Of several failures the first counts.
  void fail(const Error& why) noexcept;

  // When every rank is done well.
  void finalize();
  // After a failure: waits until all others have left, too, or cannot be waited for. The rank that failed comes first:
  // once a process has exited launchers end the others, and its own words shall be seen.
  void leave();
  // Has MPI end all processes, this one too.
  void end_all();

 private:
  // What a rank tells all others outside their operations.
  struct Notice {
    int32_t ended;  // else it has failed
    int32_t rank;   // that failed
    int32_t kind;   // of the error
    std::array<char, 2048> message;
    std::array<char, 512> hint;
  };
  struct State {
    std::deque<std::shared_ptr<Entry>> begun;  // not taken by MPI's thread yet
    std::optional<Failure> failure;
    bool opened = false;
    std::optional<Error> refused;  // why it could not be
    int ended = 0;                 // other ranks that have left after a failure
    enum class Wish { work, finalize, tell_end, end_all } wish = Wish::work;
    bool over = false;  // MPI's thread has ended
  };

  [[noreturn]] void throw_it(const Failure& failure) const;
  void end_all(const std::optional<Failure>& failure);
  void wish(State::Wish wish);

  // MPI's thread.
  void run();
  void open_mpi();
  bool round();  // looks at everything once; false when it is over
  bool advance();
  bool advance(Entry& entry);
  void rest(bool moved);
  void receive_notice();
  bool take_notice();
  void tell(bool ended);  // all others
  bool finalized();       // whether all ranks have come to the end; MPI is then finalized

  const Mpi settings_;
  SharedLibrary library_;
  ingot_mpi_open_function* open_ = nullptr;
  const ingot_mpi* mpi_ = nullptr;
  Guarded<State> state_;

  // Of MPI's thread.
  std::deque<std::shared_ptr<Entry>> entries_;
  std::optional<Failure> failure_;
  ingot_mpi_group* notices_ = nullptr;
  Notice notice_{};
  Request notice_request_;
  std::vector<std::unique_ptr<std::pair<Notice, Request>>> told_notices_;  // what is sent stays until the end
  Request last_;
  bool told_ = false;
  bool told_end_ = false;
  int64_t idle_ = 0;

  std::thread thread_;
};

}  // namespace ingot::comm::mpi
