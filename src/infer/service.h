// Runs an Engine on a thread of its own: requests come from any thread, outputs go to listeners after each step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_watch.h"
#include "infer/engine.h"

namespace ingot::infer {

// Receives the outputs of a ticket: the engine's Output, with `request` being the request's index among those submitted
// together. Called on the engine's thread, which waits for it: it must be quick and must not call the service. Returns
// false to end the request. It should not throw; if it does, all requests of the ticket are cancelled and nothing more
// of it is delivered.
using Listener = std::function<bool(Output)>;

struct ServiceCounts {
  EngineCounts engine;
  int64_t queued = 0;  // requests without an output yet, in the engine or not
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // of requests that the engine has accepted
  int64_t output_tokens = 0;
  double step_s = 0;  // total time of the steps
};

class Service {
 public:
  // Owns the engine and starts its thread. `queue`: max requests that wait for their first output; `share`: max of
  // these per owner (Request::owner), 0: no limit. `files`: the files that the model's weights are mapped from, or
  // null. When one of them has a fault, every running request ends as failed, with Output::file, before a token that it
  // may have affected is delivered; the service goes on, and later requests end the same way. `max_prompt_tokens`: max
  // prompt tokens of all tickets that have not ended, where a prompt that requests share counts once; one owner may
  // have half of it. Errors: usage for a queue below 1; resource when the thread cannot be started.
  Service(std::unique_ptr<Engine> engine, int64_t queue, int64_t share = 0,
          std::shared_ptr<const FileWatch> files = nullptr, int64_t max_prompt_tokens = INT64_MAX);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service();  // cancels what still runs; listeners get its end

  // Queues all requests, of one owner, or none. Returns the ticket for `cancel`; the listener may be called before this
  // returns. A request that the engine refuses ends as FinishReason::failed with the engine's message and kind. If the
  // engine fails, requests without an output end as unavailable and others as internal; if the service ends first, all
  // end as unavailable. Errors: usage when there are more requests or prompt tokens than may ever wait at once, in
  // total or of one owner; resource when there is no room for them now; unavailable while draining and when the engine
  // has failed.
  int64_t submit(std::vector<Request> requests, Listener listener);

  // Cancels the rest of a ticket at the next step. The listener is not called after this returns. Must not be called by
  // a listener.
  void cancel(int64_t ticket) noexcept;
  // Cancels one request of a ticket; its last output is delivered as usual.
  void cancel(int64_t ticket, int64_t request) noexcept;

  // Changes the share of an owner; requests that already wait stay.
  void set_share(int64_t share);
  // Refuses new requests from now on.
  void drain();
  bool idle() const;  // nothing waits or runs
  // Why the engine's thread has stopped; empty while it runs.
  std::string failure() const;
  // The fault of the model's files, if there is one. Checks the files now.
  std::optional<FileFault> file_fault() const;
  ServiceCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::infer
