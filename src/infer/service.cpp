#include "infer/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/threads.h"

namespace ingot::infer {

namespace {

// Values in TicketState::engine_ids for requests without an engine id.
constexpr int64_t not_admitted = 0;
constexpr int64_t ended = -1;

// Seconds without requests after which other ranks of the model are asked whether they are there.
constexpr double check_ranks_s = 5;

// What the requests of a ticket share. The lock is held while the listener runs, so that whoever removes the listener
// knows that it is not running.
struct TicketState {
  uint64_t owner = 0;
  Guarded<Listener> listener;
  std::vector<int64_t> engine_ids;  // by request: its engine id or a constant above; the engine's thread only
};

struct Ticket {
  std::shared_ptr<TicketState> ticket_state;
  size_t left = 0;              // requests that have not ended
  int64_t prompt_tokens = 0;    // of its prompts, shared ones once
  bool any_cancelled = false;   // some of `cancelled` are set
  std::vector<char> cancelled;  // by request
};

struct Arrival {
  int64_t ticket = 0;
  int64_t index = 0;
  Request request;
  std::shared_ptr<TicketState> ticket_state;
};

// What other threads pass to the engine's thread, and what they read.
struct Inbox {
  std::vector<Arrival> arrivals;
  std::map<int64_t, Ticket> tickets;  // with requests that have not ended
  bool any_cancelled = false;         // some ticket's any_cancelled is set
  int64_t next_ticket = 1;
  int64_t share = 0;
  int64_t waiting = 0;                           // requests without an output yet
  std::map<uint64_t, int64_t> waiting_of;        // of these, by owner; owner 0 has no entry
  int64_t prompt_tokens = 0;                     // of all tickets
  std::map<uint64_t, int64_t> prompt_tokens_of;  // by owner, likewise
  bool draining = false;
  bool stop = false;
  bool failed = false;
  std::string failure;
  ServiceCounts counts;

  // Marks all requests of a ticket as cancelled; null if they have ended.
  Ticket* cancel(int64_t ticket) {
    const auto found = tickets.find(ticket);
    if (found == tickets.end()) return nullptr;
    std::fill(found->second.cancelled.begin(), found->second.cancelled.end(), 1);
    found->second.any_cancelled = any_cancelled = true;
    return &found->second;
  }

  void add_waiting(uint64_t owner, int64_t count) { add(waiting, waiting_of, owner, count); }
  void add_prompt_tokens(uint64_t owner, int64_t count) { add(prompt_tokens, prompt_tokens_of, owner, count); }

 private:
  static void add(int64_t& all, std::map<uint64_t, int64_t>& of, uint64_t owner, int64_t count) {
    all += count;
    if (owner == 0) return;
    int64_t& owned = of[owner];
    owned += count;
    if (owned == 0) of.erase(owner);
  }
};

// A request in the engine. The engine's thread only.
struct Running {
  int64_t ticket = 0;
  int64_t index = 0;
  bool has_output = false;  // it has had an output
  std::shared_ptr<TicketState> ticket_state;
};

// The result of passing on an output. unwanted: its request is to be cancelled; failed: all requests of its ticket are,
// because the listener has thrown and is gone.
enum class Delivery { wanted, unwanted, failed };

// Passes an output to the listener, if there still is one.
Delivery deliver(const std::shared_ptr<TicketState>& ticket_state, int64_t index, Output output) noexcept {
  output.request = index;
  auto listener = ticket_state->listener.lock();
  try {
    return !*listener || (*listener)(std::move(output)) ? Delivery::wanted : Delivery::unwanted;
  } catch (const std::exception&) {
    *listener = nullptr;
    return Delivery::failed;
  }
}

// A copy, or a text that needs no allocation.
std::string copy_of(const std::string& text) noexcept {
  try {
    return text;
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
}

std::string message_of(const std::exception& error) noexcept {
  try {
    return text_of(error);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
}

Output failed(std::string why, ErrorKind kind) noexcept {
  Output output;
  output.finish = FinishReason::failed;
  output.error = std::move(why);
  output.kind = kind;
  return output;
}

// The kind of an exception that the engine threw for one request.
ErrorKind reported_kind(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->kind();
  return dynamic_cast<const std::bad_alloc*>(&error) ? ErrorKind::unavailable : ErrorKind::internal;
}

}  // namespace

struct Service::State {
  std::unique_ptr<Engine> engine;
  int64_t queue;
  int64_t max_prompt_tokens;
  std::shared_ptr<const FileWatch> files;
  Guarded<Inbox> inbox;
  std::map<int64_t, Running> running;
  std::thread thread;

  void run() noexcept;
  void serve();
  void admit(Arrival& arrival) noexcept;
  static void cancel_marked(Inbox& all, Engine& engine) noexcept;
  void give(Output output) noexcept;
  void fail_all(const std::string& why, ErrorKind kind) noexcept;
  void fail_by_file(const FileFault& fault);
  void end(int64_t ticket, bool has_output) noexcept;
};

Service::Service(std::unique_ptr<Engine> engine, int64_t queue, int64_t share, std::shared_ptr<const FileWatch> files,
                 int64_t max_prompt_tokens)
    : state_(std::make_unique<State>()) {
  if (queue < 1) throw_error(ErrorKind::usage, "the queue length is {}; it must be at least 1", queue);
  state_->engine = std::move(engine);
  state_->queue = queue;
  state_->max_prompt_tokens = max_prompt_tokens;
  state_->files = std::move(files);
  state_->inbox.lock()->share = share;
  state_->thread = start_thread("the engine", [state = state_.get()] { state->run(); });
}

Service::~Service() {
  state_->inbox.lock()->stop = true;
  state_->inbox.notify_all();
  state_->thread.join();
}

int64_t Service::submit(std::vector<Request> requests, Listener listener) {
  const int64_t count = static_cast<int64_t>(requests.size());
  if (count == 0) throw_error(ErrorKind::usage, "the list of requests is empty");
  const auto ticket_state = std::make_shared<TicketState>();
  ticket_state->owner = requests.front().owner;
  ticket_state->engine_ids.assign(requests.size(), not_admitted);
  *ticket_state->listener.lock() = std::move(listener);
  int64_t prompt_tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const bool shared = i > 0 && requests[i].prompt.same_as(requests[i - 1].prompt);
    prompt_tokens += shared ? 0 : requests[i].prompt.size();
  }
  Ticket entry{ticket_state, requests.size(), prompt_tokens, false, std::vector<char>(requests.size(), 0)};
  int64_t ticket = 0;
  {
    auto inbox = state_->inbox.lock();
    const bool shares = ticket_state->owner != 0 && inbox->share > 0;
    const int64_t max_queued = shares ? std::min(state_->queue, inbox->share) : state_->queue;
    if (count > max_queued)
      throw_error(ErrorKind::usage, "{} outputs in one request; at most {} can be queued", count, max_queued);
    if (inbox->failed) throw_error(ErrorKind::unavailable, "the engine has failed: {}", inbox->failure);
    if (inbox->draining || inbox->stop) throw_error(ErrorKind::unavailable, "the server is shutting down");
    if (inbox->waiting + count > state_->queue) {
      throw_hint(ErrorKind::resource, "try again later", "{} requests are already queued; the queue holds {}",
                 inbox->waiting, state_->queue);
    }
    const auto waiting = inbox->waiting_of.find(ticket_state->owner);
    const int64_t before = waiting == inbox->waiting_of.end() ? 0 : waiting->second;
    if (shares && before + count > inbox->share) {
      throw_hint(ErrorKind::resource, "try again when some of them have started",
                 "{} requests of this key are already queued; the limit is {}", before, inbox->share);
    }
    const auto own_tokens = inbox->prompt_tokens_of.find(ticket_state->owner);
    const int64_t held = own_tokens == inbox->prompt_tokens_of.end() ? 0 : own_tokens->second;
    const int64_t max_own = ticket_state->owner == 0 ? state_->max_prompt_tokens : state_->max_prompt_tokens / 2;
    if (prompt_tokens > max_own) {
      throw_error(ErrorKind::usage, "prompts of {} tokens in one request; at most {} can be queued", prompt_tokens,
                  max_own);
    }
    if (prompt_tokens > state_->max_prompt_tokens - inbox->prompt_tokens || prompt_tokens > max_own - held) {
      throw_hint(ErrorKind::resource, "try again when some of them have finished",
                 "prompts of {} tokens are already held, {} of them of this client; the limits are {} and {}",
                 inbox->prompt_tokens, held, state_->max_prompt_tokens, max_own);
    }
    // What may throw comes before anything is counted.
    std::vector<Arrival>& arrivals = inbox->arrivals;
    const size_t needed = arrivals.size() + requests.size();
    if (needed > arrivals.capacity()) arrivals.reserve(std::max(needed, 2 * arrivals.capacity()));
    if (ticket_state->owner != 0) {
      inbox->waiting_of.try_emplace(ticket_state->owner, 0);
      inbox->prompt_tokens_of.try_emplace(ticket_state->owner, 0);
    }
    ticket = inbox->next_ticket;
    inbox->tickets.emplace(ticket, std::move(entry));
    ++inbox->next_ticket;
    inbox->add_waiting(ticket_state->owner, count);
    inbox->add_prompt_tokens(ticket_state->owner, prompt_tokens);
    for (int64_t i = 0; i < count; ++i) {
      arrivals.push_back({ticket, i, std::move(requests[static_cast<size_t>(i)]), ticket_state});
    }
  }
  state_->inbox.notify_all();
  return ticket;
}

void Service::cancel(int64_t ticket) noexcept {
  std::shared_ptr<TicketState> ticket_state;
  {
    auto inbox = state_->inbox.lock();
    const Ticket* of = inbox->cancel(ticket);
    if (of == nullptr) return;
    ticket_state = of->ticket_state;
  }
  state_->inbox.notify_all();
  *ticket_state->listener.lock() = nullptr;
}

void Service::cancel(int64_t ticket, int64_t request) noexcept {
  {
    auto inbox = state_->inbox.lock();
    const auto found = inbox->tickets.find(ticket);
    if (found == inbox->tickets.end()) return;
    found->second.cancelled[static_cast<size_t>(request)] = 1;
    found->second.any_cancelled = inbox->any_cancelled = true;
  }
  state_->inbox.notify_all();
}

void Service::set_share(int64_t share) { state_->inbox.lock()->share = share; }

void Service::drain() { state_->inbox.lock()->draining = true; }

bool Service::idle() const { return state_->inbox.lock()->tickets.empty(); }

std::string Service::failure() const { return state_->inbox.lock()->failure; }

std::optional<FileFault> Service::file_fault() const { return state_->files ? state_->files->fault() : std::nullopt; }

ServiceCounts Service::counts() const {
  auto inbox = state_->inbox.lock();
  ServiceCounts counts = inbox->counts;
  counts.queued = inbox->waiting;
  return counts;
}

void Service::State::run() noexcept {
  try {
    serve();
    fail_all("the server is shutting down", ErrorKind::unavailable);
  } catch (const std::exception& error) {
    // An error that does not belong to one request leaves the engine in an unknown state.
    fail_all(message_of(error), ErrorKind::internal);
  }
}

// Runs until the service ends. A failure of one request ends only that request; only exceptions of the engine's step
// are left to the caller.
void Service::State::serve() {
  for (;;) {
    std::vector<Arrival> arrivals;
    bool checks_ranks = false;
    {
      auto held = inbox.lock();
      const auto has_work = [](const Inbox& i) { return i.stop || !i.arrivals.empty() || i.any_cancelled; };
      if (engine->idle() && !engine->has_ranks()) held.wait(has_work);
      checks_ranks = engine->idle() && engine->has_ranks() && !held.wait_for(check_ranks_s, has_work);
      if (held->stop) return;
      arrivals.swap(held->arrivals);
    }
    if (checks_ranks) {
      engine->check_ranks();
      continue;
    }
    for (Arrival& arrival : arrivals) admit(arrival);
    {
      auto held = inbox.lock();
      if (held->any_cancelled) cancel_marked(*held, *engine);
    }
    const double started = steady_seconds();
    std::vector<Output> outputs = engine->step();
    if (files && !running.empty()) {
      if (const std::optional<FileFault> fault = files->fault()) fail_by_file(*fault);
    }
    int64_t tokens = 0;
    for (Output& output : outputs) {
      tokens += output.token ? 1 : 0;
      give(std::move(output));
    }
    auto held = inbox.lock();
    held->counts.engine = engine->counts();
    held->counts.output_tokens += tokens;
    ++held->counts.steps;
    held->counts.step_s += steady_seconds() - started;
  }
}

void Service::State::admit(Arrival& arrival) noexcept {
  const auto index = static_cast<size_t>(arrival.index);
  const int64_t prompt = arrival.request.prompt.size();
  try {
    // What may throw comes before the engine has the request.
    std::map<int64_t, Running> entry;
    entry.emplace(not_admitted, Running{arrival.ticket, arrival.index, false, arrival.ticket_state});
    auto node = entry.extract(entry.begin());
    node.key() = engine->submit(std::move(arrival.request));
    arrival.ticket_state->engine_ids[index] = node.key();
    running.insert(std::move(node));
    inbox.lock()->counts.prompt_tokens += prompt;
  } catch (const std::exception& error) {
    const Delivery delivery =
        deliver(arrival.ticket_state, arrival.index, failed(message_of(error), reported_kind(error)));
    arrival.ticket_state->engine_ids[index] = ended;
    if (delivery == Delivery::failed) inbox.lock()->cancel(arrival.ticket);
    end(arrival.ticket, false);
  }
}

// Cancels in the engine the requests that are marked as cancelled; those not admitted yet stay marked.
void Service::State::cancel_marked(Inbox& all, Engine& engine) noexcept {
  all.any_cancelled = false;
  for (auto& [ticket, of] : all.tickets) {
    if (!of.any_cancelled) continue;
    of.any_cancelled = false;
    for (size_t i = 0; i < of.cancelled.size(); ++i) {
      if (of.cancelled[i] == 0) continue;
      const int64_t engine_id = of.ticket_state->engine_ids[i];
      if (engine_id == not_admitted) {
        of.any_cancelled = all.any_cancelled = true;
        continue;
      }
      of.cancelled[i] = 0;
      if (engine_id != ended) engine.cancel(engine_id);
    }
  }
}

void Service::State::give(Output output) noexcept {
  const int64_t engine_id = output.request;
  const auto found = running.find(engine_id);
  if (found == running.end()) return;
  Running& of = found->second;
  const bool last = output.finish.has_value();
  if (!of.has_output && !last) inbox.lock()->add_waiting(of.ticket_state->owner, -1);
  const Delivery delivery = deliver(of.ticket_state, of.index, std::move(output));
  if (delivery == Delivery::failed) inbox.lock()->cancel(of.ticket);
  if (last) {
    of.ticket_state->engine_ids[static_cast<size_t>(of.index)] = ended;
    end(of.ticket, of.has_output);
    running.erase(found);
    return;
  }
  of.has_output = true;
  if (delivery != Delivery::wanted) engine->cancel(engine_id);
}

// Counts a request as ended, and erases the ticket after its last request.
void Service::State::end(int64_t ticket, bool has_output) noexcept {
  auto held = inbox.lock();
  Ticket& of = held->tickets.at(ticket);
  if (!has_output) held->add_waiting(of.ticket_state->owner, -1);
  if (--of.left > 0) return;
  held->add_prompt_tokens(of.ticket_state->owner, -of.prompt_tokens);
  held->tickets.erase(ticket);
}

// Fails all running requests. Outputs that the engine still has for them are dropped.
void Service::State::fail_by_file(const FileFault& fault) {
  const std::string file = fault.file.string();
  const std::string why = fmt::format("model file {}: {}", file, fault.what);
  for (const auto& [engine_id, of] : running) {
    Output output = failed(copy_of(why), ErrorKind::corrupt);
    output.file = copy_of(file);
    deliver(of.ticket_state, of.index, std::move(output));
    of.ticket_state->engine_ids[static_cast<size_t>(of.index)] = ended;
    end(of.ticket, of.has_output);
    engine->cancel(engine_id);
  }
  running.clear();
}

// Fails all requests. `kind`: for those that have had an output; others get unavailable.
void Service::State::fail_all(const std::string& why, ErrorKind kind) noexcept {
  std::vector<Arrival> arrivals;
  {
    auto held = inbox.lock();
    if (!held->failed) held->failure = copy_of(why);
    held->failed = true;
    arrivals.swap(held->arrivals);
  }
  for (const Arrival& arrival : arrivals) {
    deliver(arrival.ticket_state, arrival.index, failed(copy_of(why), ErrorKind::unavailable));
  }
  for (const auto& [engine_id, of] : running) {
    deliver(of.ticket_state, of.index, failed(copy_of(why), of.has_output ? kind : ErrorKind::unavailable));
  }
  running.clear();
  // Last: `cancel` of an unknown ticket returns at once and relies on its listener not being called any more.
  auto held = inbox.lock();
  held->tickets.clear();
  held->waiting = 0;
  held->waiting_of.clear();
  held->prompt_tokens = 0;
  held->prompt_tokens_of.clear();
}

}  // namespace ingot::infer
