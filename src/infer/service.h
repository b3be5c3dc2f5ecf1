// The engine's thread: requests come from any thread, what they give goes back to listeners, a step at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_watch.h"
#include "infer/engine.h"

namespace ingot::infer {

// What a request gave: the engine's Output, `request` being its place among those that were submitted together. Called
// on the engine's thread, which waits meanwhile: it must be quick and may not call the service. False: the request is
// to end. It should not throw; where it does, nothing more of the ticket comes, and its requests end.
using Listener = std::function<bool(Output)>;

struct ServiceCounts {
  EngineCounts engine;
  int64_t queued = 0;  // not yet given to the engine, or waiting in it
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // of requests that were taken
  int64_t output_tokens = 0;
  double step_s = 0;  // in steps, altogether
};

class Service {
 public:
  // Owns the engine and starts its thread. `queue`: most requests that wait for their first token; `share`: of them, of
  // one owner (Request::owner), or 0 for all; `files`: those that the model's weights are mapped from, or null. When
  // one of them has a fault, every request ends as failed, with Output::file, before a token that may come of it is
  // given; the service goes on, and so does what comes later end. `max_prompt_tokens`: of the prompts of all tickets
  // that have not ended, each counted once where requests share it, and half of them of one owner. Errors: resource
  // when there is no thread.
  Service(std::unique_ptr<Engine> engine, int64_t queue, int64_t share = 0,
          std::shared_ptr<const FileWatch> files = nullptr, int64_t max_prompt_tokens = INT64_MAX);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service();  // what still runs is cancelled; listeners get its end

  // All or none, all of one owner. Gives the ticket that `cancel` takes; the listener may be called before this
  // returns. What the engine itself refuses comes as Finish::failed with its words and kind; where the engine fails or
  // the service ends first, what has no token yet comes as unavailable, and what has as internal, or unavailable at
  // the end. Errors: usage when there are more than the queue, or the owner's share of it, ever takes; resource when it
  // has no room for them now; unavailable while draining and when the engine has failed.
  int64_t submit(std::vector<Request> requests, Listener listener);

  // Ends what is left of a ticket at the next step. After it returns the listener is not called any more. May not be
  // called by a listener.
  void cancel(int64_t ticket) noexcept;
  // Ends one request of a ticket; its last output comes as always.
  void cancel(int64_t ticket, int64_t request) noexcept;

  // From now on an owner has another share; what waits stays.
  void set_share(int64_t share);
  // From now on nothing is taken.
  void drain();
  bool idle() const;  // nothing waits or runs
  // Why nothing can be taken any more; empty while all is well.
  std::string failure() const;
  // Of the model's files; nothing while all is well. Looks at them.
  std::optional<FileFault> file_fault() const;
  ServiceCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::infer
