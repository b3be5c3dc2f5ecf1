// Jobs for MPI's thread (mpi_world.h): operations that are cut into chunks of a size that MPI accepts.
//
// Any thread may make a job; only MPI's thread calls begin() and end(). User memory (`out`, `in`, `data`) belongs to
// the job until it is done or given up. MPI never accesses it: it works on buffers that the job owns, from its first
// chunk to its last. So of the jobs that wait for each other one has buffers. Errors of begin() and end(): unavailable,
// with MPI's own message; internal when an integer sum overflows.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "comm/mpi_plugin.h"
#include "comm/transport.h"

namespace ingot::comm::mpi {

// Throws `unavailable` when `error`, which the MPI call `what` returned, is not 0.
void check(const ingot_mpi& mpi, int error, const char* what);

// An MPI request that may be in progress.
class Request {
 public:
  ingot_mpi_request** out() { return &request_; }
  bool pending() const { return request_ != nullptr; }
  // Tests a pending request. If this returns true, the request is no longer pending.
  bool done(const ingot_mpi& mpi);
  void cancel(const ingot_mpi& mpi) { check(mpi, mpi.cancel(std::exchange(request_, nullptr)), "cancel"); }

 private:
  ingot_mpi_request* request_ = nullptr;
};

// An operation in chunks, which MPI's thread advances.
class Job {
 public:
  virtual ~Job() = default;
  // Starts the next chunk, with the current contents of the user's memory; false when no chunk is left.
  virtual bool begin(const ingot_mpi& mpi, Request& request) = 0;
  // Called when the started chunk is done: stores its result in the user's memory.
  virtual void end() = 0;
};

// A collective: reduce_scatter (reduce only), all_gather (gather only) or all_reduce (both).
struct Collective {
  std::vector<size_t> sections;  // elements per rank
  bool reduce = false;           // `in` has all sections, else only this rank's
  bool gather = false;           // `out` receives all sections, else only this rank's
  Number number = Number::i32;
  ReduceOp combine = ReduceOp::sum;
  size_t width = 1;  // bytes per element
};
std::unique_ptr<Job> exchange(ingot_mpi_group* group, int rank, Collective collective, void* out, const void* in);

std::unique_ptr<Job> send(ingot_mpi_group* group, int to, const void* data, size_t bytes);
std::unique_ptr<Job> receive(ingot_mpi_group* group, int from, void* data, size_t bytes);
std::unique_ptr<Job> broadcast(ingot_mpi_group* group, int rank, int root, void* data, size_t bytes);

std::unique_ptr<Job> barrier(ingot_mpi_group* group);

struct SplitResult {
  ingot_mpi_group* group = nullptr;
  int rank = 0, size = 1;
};
// Fills `result`, which is shared because the caller may give it up while MPI's thread is about to fill it.
std::unique_ptr<Job> split(ingot_mpi_group* group, int color, int key, std::shared_ptr<SplitResult> result);

}  // namespace ingot::comm::mpi
