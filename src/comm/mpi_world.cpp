#include "comm/mpi_world.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/machine.h"
#include "base/threads.h"

namespace ingot::comm::mpi {

namespace {

// Seconds that a rank waits for the others to leave after a failure.
constexpr double grace_s = 5;

}  // namespace

World::World(const Mpi& settings) : settings_(settings), library_({settings.plugin.string()}, {}) {
  if (!library_) {
    throw_hint(ErrorKind::unavailable, "build it with the MPI that starts ingot: ./run mpi",
               "the MPI plug-in {} cannot be loaded: {}", settings.plugin.string(), library_.reason());
  }
  library_.bind(open_, "ingot_mpi_open");
  thread_ = start_thread("the calls of MPI", [this] { run(); });
}

World::~World() { thread_.join(); }

const ingot_mpi& World::open() {
  auto held = state_.lock();
  held.wait([](const State& state) { return state.opened || state.refused; });
  if (held->refused) throw Error(*held->refused);
  return *mpi_;
}

std::shared_ptr<Entry> World::begin(ingot_mpi_group* group, int lane, std::string what, std::unique_ptr<Job> job) {
  auto entry = std::make_shared<Entry>(group, lane, std::move(what), std::move(job));
  {
    auto held = state_.lock();
    if (held->failure) rethrow(*held->failure);
    held->pending.push_back(entry);
  }
  state_.notify_all();
  return entry;
}

void World::wait(const Entry& entry) {
  auto held = state_.lock();
  held.wait([&](const State& state) { return entry.done || state.failure; });
  if (!entry.done) rethrow(*held->failure);
}

void World::note(std::string activity) {
  auto held = state_.lock();
  held->note = std::move(activity);
}

std::string World::behind() {
  auto held = state_.lock();
  held->asks = true;
  held->behind.clear();
  held.wait_for(2 * RollCall::patience_s, [](const State& state) { return !state.asks || state.over; });
  return held->behind;
}

void World::require_running() {
  auto held = state_.lock();
  if (held->failure) rethrow(*held->failure);
}

void World::fail(const Error& why) noexcept {
  {
    auto held = state_.lock();
    if (!held->failure) held->failure = {mpi_->rank, why};
  }
  state_.notify_all();
}

void World::finalize() {
  send_command(State::Command::finalize);
  auto held = state_.lock();
  held.wait([](const State& state) { return state.over || state.failure; });
  if (held->failure) rethrow(*held->failure);
}

void World::leave() {
  send_command(State::Command::report_end);
  bool failed_here = false;
  {
    auto held = state_.lock();
    failed_here = held->failure && held->failure->rank == mpi_->rank;
    held.wait_for(grace_s, [&](const State& state) { return state.ended == mpi_->size - 1; });
  }
  if (!failed_here) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void World::end_all() {
  // A launcher that ends the processes may lose what it has not yet read of their output: the error that was printed.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  send_command(State::Command::end_all);
  std::optional<Failure> failure;
  {
    auto held = state_.lock();
    held.wait([](const State& state) { return state.over; });
    failure = held->failure;
  }
  end_all(failure);  // only reached when MPI's thread ended before, after an error of MPI's own
}

void World::rethrow(const Failure& failure) const {
  if (failure.rank == mpi_->rank) throw Error(failure.error);
  throw_failure(failure);
}

void World::end_all(const std::optional<Failure>& failure) {
  mpi_->abort(exit_code(failure ? failure->error.kind() : ErrorKind::internal));
}

void World::send_command(State::Command command) {
  {
    auto held = state_.lock();
    held->command = command;
  }
  state_.notify_all();
}

void World::run() {
  try {
    open_mpi();
    while (round()) {
    }
  } catch (...) {
    const Error error = error_of_exception();
    auto held = state_.lock();
    if (!held->opened) {
      held->refused = error;
    } else if (!held->failure) {
      held->failure = {mpi_->rank, error};
    }
  }
  {
    auto held = state_.lock();
    held->over = true;
  }
  state_.notify_all();
}

void World::open_mpi() {
  std::array<char, 512> text{};
  mpi_ = open_(text.data(), static_cast<int>(text.size()));
  const std::string plugin = settings_.plugin.string();
  if (mpi_ == nullptr) throw_error(ErrorKind::unavailable, "{}: MPI cannot be initialised: {}", plugin, text.data());
  if (mpi_->abi != INGOT_MPI_ABI) {
    throw_hint(ErrorKind::unavailable, "rebuild it: ./run mpi", "{} has version {}, but this ingot needs {}", plugin,
               mpi_->abi, static_cast<int>(INGOT_MPI_ABI));
  }
  if (mpi_->size != settings_.size) {
    const std::string library = mpi_->library;
    throw_hint(ErrorKind::unavailable,
               "build the plug-in with the launcher's MPI (./run mpi), or use the launcher of the plug-in's MPI; "
               "INGOT_MPI selects another plug-in",
               "the launcher started {} processes, but the MPI of {} ({}) sees {}", settings_.size, plugin,
               library.substr(0, library.find_first_of(",\n")), mpi_->size);
  }
  check(*mpi_, mpi_->split(mpi_->world, 0, mpi_->rank, &notices_), "Comm_split");
  receive_notice();
  gather_hosts();
  {
    auto held = state_.lock();
    held->opened = true;
  }
  state_.notify_all();
}

void World::gather_hosts() {
  constexpr int width = 64;
  const auto ranks = static_cast<size_t>(mpi_->size);
  std::array<char, width> own{};
  host_name().copy(own.data(), own.size() - 1);
  std::vector<char> all(ranks * width);
  std::vector<int> counts(ranks, width), at(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) at[rank] = static_cast<int>(rank) * width;
  Request request;
  check(*mpi_, mpi_->all_gather(notices_, own.data(), width, all.data(), counts.data(), at.data(), request.out()),
        "Iallgatherv");
  while (!request.done(*mpi_)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  for (size_t rank = 0; rank < ranks; ++rank) hosts_.emplace_back(all.data() + rank * width);
}

bool World::round() {
  State::Command command = State::Command::work;
  {
    auto held = state_.lock();
    for (std::shared_ptr<Entry>& entry : held->pending) {
      entry->moved = steady_seconds();
      entries_.push_back(std::move(entry));
    }
    held->pending.clear();
    command = held->command;
    failure_ = held->failure;
  }
  bool moved = take_notice();
  if (failure_ && !reported_) report(false);
  if (command == State::Command::end_all) end_all(failure_);
  if (command == State::Command::report_end && !reported_end_) report(true);
  if (!failure_) moved |= advance();
  answer_asker();
  if (command == State::Command::finalize && !failure_ && finalized()) return false;
  back_off(moved);
  return true;
}

bool World::advance() {
  bool moved = false;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = *entries_[i];
    const bool later = std::any_of(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(i), [&](const auto& e) {
      return !e->done && e->group == entry.group && e->lane == entry.lane;
    });
    if (!later) moved |= advance(entry);
  }
  std::erase_if(entries_, [](const auto& entry) { return entry->done; });
  return moved;
}

bool World::advance(Entry& entry) {
  try {
    auto use = entry.use.lock();
    if (use->given_up) return false;  // MPI may still use the job's buffers, so they stay
    bool moved = false;
    while (!entry.in_flight || entry.request.done(*mpi_)) {
      if (std::exchange(entry.in_flight, false)) entry.job->end();
      moved = true;
      entry.moved = steady_seconds();
      roll_call_.reset();  // whoever was behind has come
      if (!entry.job->begin(*mpi_, entry.request)) {
        {
          auto held = state_.lock();
          entry.done = true;
        }
        state_.notify_all();
        return true;
      }
      entry.in_flight = true;
    }
    if (!moved && steady_seconds() - entry.moved > settings_.timeout_s && calls_roll()) {
      throw_hint(ErrorKind::unavailable, timeout_hint, "rank {} has waited {} s for other ranks in {}: {}", mpi_->rank,
                 settings_.timeout_s, entry.what, roll_call_->behind(entry.what));
    }
    return moved;
  } catch (...) {
    fail(error_of_exception());
    return false;
  }
}

// Polls hard while there is progress, then less and less often, because other threads need the processor.
void World::back_off(bool moved) {
  idle_ = moved ? 0 : idle_ + 1;
  if (idle_ < 100) {
    std::this_thread::yield();
  } else if (!entries_.empty()) {
    std::this_thread::sleep_for(std::chrono::microseconds(idle_ < 1000 ? 20 : 200));
  } else {
    auto held = state_.lock();
    held.wait_for(0.02, [&](const State& state) {
      switch (state.command) {
        case State::Command::work: break;
        case State::Command::finalize:
          if (!last_.pending()) return true;
          break;
        case State::Command::report_end:
          if (!reported_end_) return true;
          break;
        case State::Command::end_all: return true;
      }
      return !state.pending.empty() || (state.failure && !reported_);
    });
  }
}

void World::receive_notice() {
  check(*mpi_, mpi_->receive(notices_, &notice_, sizeof notice_, INGOT_MPI_ANY, notice_request_.out()), "Irecv");
}

bool World::take_notice() {
  if (!notice_request_.pending() || !notice_request_.done(*mpi_)) return false;
  std::optional<int> asker;
  {
    auto held = state_.lock();
    switch (notice_.type) {
      case Notice::Type::left: ++held->ended; break;
      case Notice::Type::answers:
        if (roll_call_) roll_call_->answer(notice_.rank, notice_.message.data());
        break;
      case Notice::Type::asks: asker = notice_.rank; break;
      case Notice::Type::failed:
        if (held->failure) break;
        held->failure = {notice_.rank,
                         Error(static_cast<ErrorKind>(notice_.kind), notice_.message.data(), notice_.hint.data())};
        failure_ = held->failure;
        reported_ = true;  // the rank that failed has reported to all
        break;
    }
  }
  if (asker) {
    Notice answer{.type = Notice::Type::answers, .rank = mpi_->rank, .kind = 0, .message = {}, .hint = {}};
    activity().copy(answer.message.data(), answer.message.size() - 1);
    send_notice(answer, *asker);
  }
  state_.notify_all();
  receive_notice();
  return true;
}

void World::report(bool ended) {
  (ended ? reported_end_ : reported_) = true;
  Notice notice{};
  notice.type = ended ? Notice::Type::left : Notice::Type::failed;
  if (failure_) {
    notice.rank = failure_->rank;
    notice.kind = static_cast<int32_t>(failure_->error.kind());
    failure_->error.message().copy(notice.message.data(), notice.message.size() - 1);
    failure_->error.hint().copy(notice.hint.data(), notice.hint.size() - 1);
  }
  send_to_others(notice);
}

void World::send_to_others(const Notice& notice) {
  for (int rank = 0; rank < mpi_->size; ++rank) {
    if (rank != mpi_->rank) send_notice(notice, rank);
  }
}

void World::send_notice(const Notice& notice, int rank) {
  sent_notices_.push_back(std::make_unique<std::pair<Notice, Request>>(notice, Request()));
  auto& [sent, request] = *sent_notices_.back();
  check(*mpi_, mpi_->send(notices_, &sent, sizeof sent, rank, request.out()), "Isend");
}

std::string World::activity() {
  if (!entries_.empty()) return entries_.front()->what;
  auto held = state_.lock();
  return held->note;
}

bool World::calls_roll() {
  if (!roll_call_) {
    roll_call_.emplace(mpi_->rank, hosts_, steady_seconds());
    Notice notice{};
    notice.type = Notice::Type::asks;
    notice.rank = mpi_->rank;
    send_to_others(notice);
  }
  return roll_call_->over(steady_seconds());
}

// Ends the roll call that behind() waits for.
void World::answer_asker() {
  {
    auto held = state_.lock();
    if (!held->asks) return;
  }
  if (!calls_roll()) return;
  {
    auto held = state_.lock();
    held->behind = roll_call_->behind(held->note);
    held->asks = false;
  }
  state_.notify_all();
}

bool World::finalized() {
  if (!entries_.empty()) {
    throw_error(ErrorKind::internal, "rank {} ends without having waited for {}", mpi_->rank, entries_.front()->what);
  }
  if (!last_.pending()) check(*mpi_, mpi_->barrier(notices_, last_.out()), "Ibarrier");
  if (!last_.done(*mpi_)) return false;
  notice_request_.cancel(*mpi_);
  check(*mpi_, mpi_->finalize(), "Finalize");
  return true;
}

}  // namespace ingot::comm::mpi
