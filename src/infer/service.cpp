#include "infer/service.h"

#include <deque>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/signals.h"

namespace ingot::infer {

namespace {

// What a ticket's requests have in common. The lock is held while the listener runs, so that who takes the listener
// away knows that it does not run.
struct Caller {
  uint64_t owner = 0;
  Guarded<Listener> listener;
};

struct Ticket {
  std::shared_ptr<Caller> caller;
  size_t left = 0;  // requests that have not ended
};

struct Arrival {
  int64_t ticket = 0;
  int64_t index = 0;
  Request request;
  std::shared_ptr<Caller> caller;
};

struct Withdrawal {
  int64_t ticket = 0;
  std::optional<int64_t> index;  // all of the ticket without one
};

// What other threads leave for the engine's.
struct Inbox {
  std::deque<Arrival> arrivals;
  std::vector<Withdrawal> withdrawals;
  std::map<int64_t, Ticket> tickets;  // those of which something is left
  int64_t next_ticket = 1;
  int64_t waiting = 0;                     // requests without an output yet
  std::map<uint64_t, int64_t> waiting_of;  // of them, by owner, where there is one
  bool draining = false;
  bool stop = false;
  std::string failure;
  ServiceCounts counts;

  void add_waiting(uint64_t owner, int64_t count) {
    waiting += count;
    if (owner == 0) return;
    int64_t& own = waiting_of[owner];
    own += count;
    if (own == 0) waiting_of.erase(owner);
  }
};

// What the engine works on, by its name for it. The engine's thread alone.
struct Running {
  int64_t ticket = 0;
  int64_t index = 0;
  bool heard = false;  // it has given something
  std::shared_ptr<Caller> caller;
};

// Whether the request may go on.
bool tell(const std::shared_ptr<Caller>& caller, int64_t index, Output output) {
  output.request = index;
  auto listener = caller->listener.lock();
  return !*listener || (*listener)(std::move(output));
}

Output failed(std::string why, ErrorKind kind) {
  Output output;
  output.finish = Finish::failed;
  output.error = std::move(why);
  output.kind = kind;
  return output;
}

// Of what the engine threw at one request.
ErrorKind kind_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->kind();
  return dynamic_cast<const std::bad_alloc*>(&error) ? ErrorKind::unavailable : ErrorKind::internal;
}

}  // namespace

struct Service::State {
  std::unique_ptr<Engine> engine;
  int64_t queue;
  int64_t share;
  Guarded<Inbox> inbox;
  std::map<int64_t, Running> running;
  std::map<int64_t, std::map<int64_t, int64_t>> names;  // ticket -> index -> the engine's name
  std::thread thread;

  void run();
  void admit(Arrival arrival);
  void withdraw(const Withdrawal& which);
  void give(Output output);
  void fail_all(const std::string& why, ErrorKind kind);
  void end(int64_t ticket, int64_t index, bool heard);
};

Service::Service(std::unique_ptr<Engine> engine, int64_t queue, int64_t share) : state_(std::make_unique<State>()) {
  if (queue < 1) throw_error(ErrorKind::usage, "a queue of {} requests; at least 1", queue);
  state_->engine = std::move(engine);
  state_->queue = queue;
  state_->share = share;
  const BlockedSignals blocked;
  state_->thread = std::thread([this] { state_->run(); });
}

Service::~Service() {
  state_->inbox.lock()->stop = true;
  state_->inbox.notify_all();
  state_->thread.join();
}

int64_t Service::submit(std::vector<Request> requests, Listener listener) {
  const int64_t count = static_cast<int64_t>(requests.size());
  if (count == 0) throw_error(ErrorKind::usage, "no request was given");
  const auto caller = std::make_shared<Caller>();
  caller->owner = requests.front().owner;
  const bool shares = caller->owner != 0 && state_->share > 0;
  const int64_t most = shares ? std::min(state_->queue, state_->share) : state_->queue;
  if (count > most) throw_error(ErrorKind::usage, "{} outputs at once; {} at most may wait", count, most);
  *caller->listener.lock() = std::move(listener);
  int64_t ticket = 0;
  {
    auto inbox = state_->inbox.lock();
    if (!inbox->failure.empty()) throw_error(ErrorKind::unavailable, "the engine has failed: {}", inbox->failure);
    if (inbox->draining || inbox->stop) throw_error(ErrorKind::unavailable, "the server is about to end");
    if (inbox->waiting + count > state_->queue) {
      throw_hint(ErrorKind::resource, "try again later", "{} requests wait already; the queue holds {}", inbox->waiting,
                 state_->queue);
    }
    const auto own = inbox->waiting_of.find(caller->owner);
    const int64_t before = own == inbox->waiting_of.end() ? 0 : own->second;
    if (shares && before + count > state_->share) {
      throw_hint(ErrorKind::resource, "try again when some have begun", "{} requests of one owner wait already; {} may",
                 before, state_->share);
    }
    ticket = inbox->next_ticket++;
    inbox->add_waiting(caller->owner, count);
    inbox->tickets[ticket] = {caller, requests.size()};
    for (int64_t i = 0; i < count; ++i) {
      inbox->arrivals.push_back({ticket, i, std::move(requests[static_cast<size_t>(i)]), caller});
    }
  }
  state_->inbox.notify_all();
  return ticket;
}

void Service::cancel(int64_t ticket) {
  std::shared_ptr<Caller> caller;
  {
    auto inbox = state_->inbox.lock();
    const auto found = inbox->tickets.find(ticket);
    if (found == inbox->tickets.end()) return;
    caller = found->second.caller;
    inbox->withdrawals.push_back({ticket, std::nullopt});
  }
  state_->inbox.notify_all();
  *caller->listener.lock() = nullptr;
}

void Service::cancel(int64_t ticket, int64_t request) {
  state_->inbox.lock()->withdrawals.push_back({ticket, request});
  state_->inbox.notify_all();
}

void Service::drain() { state_->inbox.lock()->draining = true; }

bool Service::idle() const { return state_->inbox.lock()->tickets.empty(); }

std::string Service::failure() const { return state_->inbox.lock()->failure; }

ServiceCounts Service::counts() const {
  auto inbox = state_->inbox.lock();
  ServiceCounts counts = inbox->counts;
  counts.queued = inbox->waiting;
  return counts;
}

void Service::State::run() {
  for (;;) {
    std::deque<Arrival> arrivals;
    std::vector<Withdrawal> withdrawals;
    {
      auto held = inbox.lock();
      if (engine->idle()) {
        held.wait([](const Inbox& i) { return i.stop || !i.arrivals.empty() || !i.withdrawals.empty(); });
      }
      if (held->stop) break;
      arrivals.swap(held->arrivals);
      withdrawals.swap(held->withdrawals);
    }
    for (Arrival& arrival : arrivals) admit(std::move(arrival));
    for (const Withdrawal& which : withdrawals) withdraw(which);
    const double started = steady_seconds();
    std::vector<Output> outputs;
    try {
      outputs = engine->step();
    } catch (const std::exception& error) {
      // What the engine does not tell of one request alone has left it in a state that nobody knows.
      fail_all(text_of(error), ErrorKind::internal);
      break;
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
  fail_all("the server ends", ErrorKind::unavailable);
}

void Service::State::admit(Arrival arrival) {
  const int64_t prompt = static_cast<int64_t>(arrival.request.prompt.size());
  int64_t name = 0;
  try {
    name = engine->submit(std::move(arrival.request));
  } catch (const std::exception& error) {
    tell(arrival.caller, arrival.index, failed(text_of(error), kind_of(error)));
    end(arrival.ticket, arrival.index, false);
    return;
  }
  running[name] = {arrival.ticket, arrival.index, false, arrival.caller};
  names[arrival.ticket][arrival.index] = name;
  inbox.lock()->counts.prompt_tokens += prompt;
}

void Service::State::withdraw(const Withdrawal& which) {
  const auto found = names.find(which.ticket);
  if (found == names.end()) return;
  for (const auto& [index, name] : found->second) {
    if (!which.index || *which.index == index) engine->cancel(name);
  }
}

void Service::State::give(Output output) {
  const int64_t name = output.request;
  const auto found = running.find(name);
  if (found == running.end()) return;
  Running& of = found->second;
  const bool last = output.finish.has_value();
  if (!of.heard && !last) inbox.lock()->add_waiting(of.caller->owner, -1);
  const bool wanted = tell(of.caller, of.index, std::move(output));
  if (last) {
    end(of.ticket, of.index, of.heard);
    running.erase(found);
    return;
  }
  of.heard = true;
  if (!wanted) engine->cancel(name);
}

// Nothing more of it is to come.
void Service::State::end(int64_t ticket, int64_t index, bool heard) {
  const auto found = names.find(ticket);
  if (found != names.end()) {
    found->second.erase(index);
    if (found->second.empty()) names.erase(found);
  }
  auto held = inbox.lock();
  Ticket& of = held->tickets.at(ticket);
  if (!heard) held->add_waiting(of.caller->owner, -1);
  if (--of.left == 0) held->tickets.erase(ticket);
}

// `kind`: of those that have tokens.
void Service::State::fail_all(const std::string& why, ErrorKind kind) {
  std::deque<Arrival> arrivals;
  {
    auto held = inbox.lock();
    if (held->failure.empty()) held->failure = why;
    arrivals.swap(held->arrivals);
  }
  for (const Arrival& arrival : arrivals) tell(arrival.caller, arrival.index, failed(why, ErrorKind::unavailable));
  for (const auto& [name, of] : running) {
    tell(of.caller, of.index, failed(why, of.heard ? kind : ErrorKind::unavailable));
  }
  running.clear();
  names.clear();
  // Only now: who cancels a ticket that is not there any more may take the listener for done.
  auto held = inbox.lock();
  held->tickets.clear();
  held->waiting = 0;
  held->waiting_of.clear();
}

}  // namespace ingot::infer
