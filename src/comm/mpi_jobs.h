// What is asked of MPI's thread (mpi_world.h), and how it is cut into pieces that MPI takes.
//
// Jobs are made by any thread; begin() and end() are called by MPI's thread alone. User memory (`out`, `in`, `data`)
// belongs to the job until it is over or given up. MPI never sees it: it works on memory of the job's own, which stays
// until MPI is done with it. Errors of begin() and end(): unavailable, with MPI's own words; internal when a sum of
// integers does not fit.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "comm/channel.h"
#include "comm/mpi_plugin.h"

namespace ingot::comm::mpi {

// Throws `unavailable` when `error`, of the call `what`, is one.
void check(const ingot_mpi& mpi, int error, const char* what);

// An operation that MPI may still be working on.
class Request {
 public:
  ingot_mpi_request** out() { return &request_; }
  bool pending() const { return request_ != nullptr; }
  // Of a pending one; afterwards it is pending no more if it was done.
  bool done(const ingot_mpi& mpi);
  void cancel(const ingot_mpi& mpi) { check(mpi, mpi.cancel(std::exchange(request_, nullptr)), "cancel"); }

 private:
  ingot_mpi_request* request_ = nullptr;
};

// An operation in pieces, advanced by MPI's thread.
class Job {
 public:
  virtual ~Job() = default;
  // Begins the next piece, with the user's memory as it is now; false when there is none.
  virtual bool begin(const ingot_mpi& mpi, Request& request) = 0;
  // The piece that was begun is done: brings it into the user's memory.
  virtual void end() = 0;
};

// Reductions and gatherings.
struct Exchange {
  std::vector<size_t> sections;  // elements, by rank
  bool reduce = false;           // `in` has all sections, else one's own
  bool gather = false;           // `out` too
  Number number = Number::i32;
  Combine combine = Combine::sum;
  size_t width = 1;  // bytes of an element
};
std::unique_ptr<Job> exchange(ingot_mpi_group* group, int rank, Exchange form, void* out, const void* in);

std::unique_ptr<Job> send(ingot_mpi_group* group, int to, const void* data, size_t bytes);
std::unique_ptr<Job> receive(ingot_mpi_group* group, int from, void* data, size_t bytes);
std::unique_ptr<Job> broadcast(ingot_mpi_group* group, int rank, int root, void* data, size_t bytes);

std::unique_ptr<Job> barrier(ingot_mpi_group* group);

struct Part {
  ingot_mpi_group* group = nullptr;
  int rank = 0, size = 1;
};
// Fills `part`; shared because it may be given up while MPI's thread is about to.
std::unique_ptr<Job> split(ingot_mpi_group* group, int color, int key, std::shared_ptr<Part> part);

}  // namespace ingot::comm::mpi
