#include "comm/mpi.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/shared_library.h"
#include "base/signals.h"
#include "comm/combine.h"
#include "comm/failure.h"
#include "comm/mpi_plugin.h"

namespace ingot::comm {

namespace {

// What an operation has in memory of its own. MPI sees no other: an operation can be given up while MPI works.
constexpr size_t staged_bytes = size_t{4} << 20;
// Seconds that a rank which has failed waits for the others to have heard of it.
constexpr double grace_s = 5;

void check(const ingot_mpi& mpi, int error, const char* what) {
  if (error == 0) return;
  std::array<char, 512> text{};
  mpi.describe(error, text.data(), static_cast<int>(text.size()));
  throw_error(ErrorKind::unavailable, "MPI's {} failed: {}", what, text.data());
}

class Request {
 public:
  ingot_mpi_request** out() { return &request_; }
  bool pending() const { return request_ != nullptr; }
  bool done(const ingot_mpi& mpi) {
    int done = 0;
    check(mpi, mpi.test(request_, &done), "test");
    if (done != 0) request_ = nullptr;
    return done != 0;
  }
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

// Reductions and gatherings. `sections` are of elements, by rank. A round takes a piece of every section: reduced, each
// rank gets its section's piece from all and adds them up in the order of ranks; gathered, it is given to all.
class Exchange : public Job {
 public:
  struct Form {
    std::vector<size_t> sections;
    bool reduce = false;  // `in` has all sections, else one's own
    bool gather = false;  // `out` too
    Number number = Number::i32;
    Combine combine = Combine::sum;
    size_t width = 1;  // bytes of an element
  };

  Exchange(ingot_mpi_group* group, int rank, Form form, void* out, const void* in)
      : group_(group),
        rank_(static_cast<size_t>(rank)),
        form_(std::move(form)),
        out_(static_cast<std::byte*>(out)),
        in_(static_cast<const std::byte*>(in)),
        piece_(std::max<size_t>(staged_bytes / form_.sections.size() / form_.width, 1)),
        longest_(*std::max_element(form_.sections.begin(), form_.sections.end())) {
    const size_t ranks = form_.sections.size();
    counts_.resize(ranks);
    own_counts_.resize(ranks);
    at_.resize(ranks);
    const size_t room = std::min(piece_, longest_) * form_.width;
    for (size_t r = 0; r < ranks; ++r) at_[r] = static_cast<int>(r * room);
    own_.resize(room);
    all_.resize(room * ranks);
    if (form_.reduce) parts_.resize(room * ranks);
    size_t first = 0;
    for (const size_t section : form_.sections) {
      firsts_.push_back(first);
      first += section;
    }
  }

  bool begin(const ingot_mpi& mpi, Request& request) override {
    if (done_ >= longest_) return false;
    for (size_t r = 0; r < counts_.size(); ++r) {
      counts_[r] = static_cast<int>(elements(r) * form_.width);
      own_counts_[r] = static_cast<int>(elements(rank_) * form_.width);
    }
    if (form_.reduce && !reduced_) {
      for (size_t r = 0; r < counts_.size(); ++r) copy(&all_[offset(r)], in_ + place(firsts_[r] + done_), counts_[r]);
      check(mpi,
            mpi.all_to_all(group_, all_.data(), counts_.data(), at_.data(), parts_.data(), own_counts_.data(),
                           at_.data(), request.out()),
            "Ialltoallv");
    } else {
      if (!form_.reduce) copy(own_.data(), in_ + place(done_), counts_[rank_]);
      check(mpi,
            mpi.all_gather(group_, own_.data(), counts_[rank_], all_.data(), counts_.data(), at_.data(), request.out()),
            "Iallgatherv");
    }
    return true;
  }

  void end() override {
    if (form_.reduce && !reduced_) {
      const size_t count = elements(rank_);
      copy(own_.data(), parts_.data(), counts_[rank_]);
      for (size_t r = 1; r < counts_.size(); ++r) {
        if (!combine(own_.data(), &parts_[offset(r)], count, form_.number, form_.combine)) {
          throw_error(ErrorKind::internal, "a sum of integers over {} ranks does not fit", counts_.size());
        }
      }
      if (form_.gather) {
        reduced_ = true;
        return;
      }
      copy(out_ + place(done_), own_.data(), counts_[rank_]);
    } else {
      for (size_t r = 0; r < counts_.size(); ++r) copy(out_ + place(firsts_[r] + done_), &all_[offset(r)], counts_[r]);
      reduced_ = false;
    }
    done_ += piece_;
  }

 private:
  // Of section r, in this round.
  size_t elements(size_t r) const {
    return form_.sections[r] > done_ ? std::min(piece_, form_.sections[r] - done_) : 0;
  }
  size_t place(size_t element) const { return element * form_.width; }
  size_t offset(size_t r) const { return static_cast<size_t>(at_[r]); }
  static void copy(std::byte* to, const std::byte* from, int bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  ingot_mpi_group* group_;
  size_t rank_;
  Form form_;
  std::byte* out_;
  const std::byte* in_;
  size_t piece_;    // elements of a section in a round
  size_t longest_;  // section
  size_t done_ = 0;
  bool reduced_ = false;  // this round, and not yet gathered
  std::vector<size_t> firsts_;
  std::vector<int> counts_, own_counts_, at_;  // bytes
  std::vector<std::byte> own_, all_, parts_;
};

// One stretch of bytes that is sent, received or broadcast.
class Stretch : public Job {
 public:
  enum class Way { send, receive, broadcast };
  Stretch(ingot_mpi_group* group, Way way, int peer, bool source, std::byte* data, size_t bytes)
      : group_(group), way_(way), peer_(peer), source_(source), data_(data), bytes_(bytes) {
    staged_.resize(std::min(bytes, staged_bytes));
  }

  bool begin(const ingot_mpi& mpi, Request& request) override {
    if (done_ >= bytes_) return false;
    const int count = static_cast<int>(piece());
    if (source_) std::memcpy(staged_.data(), data_ + done_, piece());
    switch (way_) {
      case Way::send: check(mpi, mpi.send(group_, staged_.data(), count, peer_, request.out()), "Isend"); break;
      case Way::receive: check(mpi, mpi.receive(group_, staged_.data(), count, peer_, request.out()), "Irecv"); break;
      case Way::broadcast: check(mpi, mpi.broadcast(group_, staged_.data(), count, peer_, request.out()), "Ibcast");
    }
    return true;
  }
  void end() override {
    if (!source_) std::memcpy(data_ + done_, staged_.data(), piece());
    done_ += piece();
  }

 private:
  size_t piece() const { return std::min(staged_.size(), bytes_ - done_); }

  ingot_mpi_group* group_;
  Way way_;
  int peer_;
  bool source_;
  std::byte* data_;  // of a source only read
  size_t bytes_;
  size_t done_ = 0;
  std::vector<std::byte> staged_;
};

class Barrier : public Job {
 public:
  explicit Barrier(ingot_mpi_group* group) : group_(group) {}
  bool begin(const ingot_mpi& mpi, Request& request) override {
    if (over_) return false;
    check(mpi, mpi.barrier(group_, request.out()), "Ibarrier");
    return true;
  }
  void end() override { over_ = true; }

 private:
  ingot_mpi_group* group_;
  bool over_ = false;
};

// Once all have come: MPI's split waits inside MPI, where no time-out reaches.
class Split : public Job {
 public:
  struct Part {
    ingot_mpi_group* group = nullptr;
    int rank = 0, size = 1;
  };
  Split(ingot_mpi_group* group, int color, int key, std::shared_ptr<Part> part)
      : come_(group), group_(group), color_(color), key_(key), part_(std::move(part)) {}
  bool begin(const ingot_mpi& mpi, Request& request) override {
    if (come_.begin(mpi, request)) return true;
    check(mpi, mpi.split(group_, color_, key_, &part_->group), "Comm_split");
    check(mpi, mpi.place(part_->group, &part_->rank, &part_->size), "Comm_rank");
    return false;
  }
  void end() override { come_.end(); }

 private:
  Barrier come_;
  ingot_mpi_group* group_;
  int color_, key_;
  std::shared_ptr<Part> part_;
};

// A job on its way. Those of a group's lane are done one after the other: collective operations are one lane, messages
// to a rank another, those from it a third.
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

// MPI and the only thread that calls it.
class World {
 public:
  explicit World(const Mpi& settings) : settings_(settings), library_({settings.plugin.string()}, {}) {
    if (!library_) {
      throw_hint(ErrorKind::unavailable, "build it with the MPI that starts ingot: ./run mpi",
                 "the MPI plug-in {} cannot be loaded: {}", settings.plugin.string(), library_.reason());
    }
    library_.bind(open_, "ingot_mpi_open");
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() { thread_.join(); }

  // Waits until MPI is there.
  const ingot_mpi& open() {
    auto held = state_.lock();
    held.wait([](const State& state) { return state.opened || state.refused; });
    if (held->refused) throw Error(*held->refused);
    return *mpi_;
  }

  std::shared_ptr<Entry> begin(ingot_mpi_group* group, int lane, std::string what, std::unique_ptr<Job> job) {
    auto entry = std::make_shared<Entry>(group, lane, std::move(what), std::move(job));
    {
      auto held = state_.lock();
      if (held->failure) throw_it(*held->failure);
      held->begun.push_back(entry);
    }
    state_.notify_all();
    return entry;
  }

  void wait(const Entry& entry) {
    auto held = state_.lock();
    held.wait([&](const State& state) { return entry.done || state.failure; });
    if (!entry.done) throw_it(*held->failure);
  }

  void fail(const Error& why) noexcept {
    {
      auto held = state_.lock();
      if (!held->failure) held->failure = {mpi_->rank, why};
    }
    state_.notify_all();
  }

  // When every rank is done well.
  void finalize() {
    wish(State::Wish::finalize);
    auto held = state_.lock();
    held.wait([](const State& state) { return state.over || state.failure; });
    if (held->failure) throw_it(*held->failure);
  }

  // After a failure: waits until all others have left, too, or cannot be waited for. The rank that failed comes first:
  // once a process has exited launchers end the others, and its own words shall be seen.
  void leave() {
    wish(State::Wish::tell_end);
    bool own = false;
    {
      auto held = state_.lock();
      own = held->failure && held->failure->rank == mpi_->rank;
      held.wait_for(grace_s, [&](const State& state) { return state.ended == mpi_->size - 1; });
    }
    if (!own) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  // Has MPI end all processes, this one too.
  void end_all() {
    wish(State::Wish::end_all);
    std::optional<Failure> failure;
    {
      auto held = state_.lock();
      held.wait([](const State& state) { return state.over; });
      failure = held->failure;
    }
    end_all(failure);  // the thread that should have is gone, after an error of MPI's own
  }

 private:
  [[noreturn]] void throw_it(const Failure& failure) const {
    if (failure.rank == mpi_->rank) throw Error(failure.error);
    throw_failure(failure);
  }

  void end_all(const std::optional<Failure>& failure) {
    mpi_->abort(exit_code(failure ? failure->error.kind() : ErrorKind::internal));
  }

  void wish(State::Wish wish) {
    {
      auto held = state_.lock();
      held->wish = wish;
    }
    state_.notify_all();
  }

  void run() {
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

  void open_mpi() {
    std::array<char, 512> text{};
    mpi_ = open_(text.data(), static_cast<int>(text.size()));
    const std::string plugin = settings_.plugin.string();
    if (mpi_ == nullptr) throw_error(ErrorKind::unavailable, "{}: MPI cannot be initialised: {}", plugin, text.data());
    if (mpi_->abi != INGOT_MPI_ABI) {
      throw_hint(ErrorKind::unavailable, "build it again: ./run mpi", "{} is of version {} and this ingot needs {}",
                 plugin, mpi_->abi, static_cast<int>(INGOT_MPI_ABI));
    }
    if (mpi_->size != settings_.size) {
      const std::string library = mpi_->library;
      throw_hint(
          ErrorKind::unavailable,
          "build the plug-in with the launcher's MPI (./run mpi), or start ingot by the plug-in's; INGOT_MPI names "
          "another plug-in",
          "the launcher has started {} processes, but the MPI of {} ({}) knows of {}", settings_.size, plugin,
          library.substr(0, library.find_first_of(",\n")), mpi_->size);
    }
    check(*mpi_, mpi_->split(mpi_->world, 0, mpi_->rank, &notices_), "Comm_split");
    receive_notice();
    {
      auto held = state_.lock();
      held->opened = true;
    }
    state_.notify_all();
  }

  // Looks at everything once; false when it is over.
  bool round() {
    State::Wish wish = State::Wish::work;
    {
      auto held = state_.lock();
      for (std::shared_ptr<Entry>& entry : held->begun) {
        entry->moved = steady_seconds();
        entries_.push_back(std::move(entry));
      }
      held->begun.clear();
      wish = held->wish;
      failure_ = held->failure;
    }
    bool moved = take_notice();
    if (failure_ && !told_) tell(false);
    if (wish == State::Wish::end_all) end_all(failure_);
    if (wish == State::Wish::tell_end && !told_end_) tell(true);
    if (!failure_) moved |= advance();
    if (wish == State::Wish::finalize && !failure_ && finalized()) return false;
    rest(moved);
    return true;
  }

  bool advance() {
    bool moved = false;
    for (size_t i = 0; i < entries_.size(); ++i) {
      Entry& entry = *entries_[i];
      const bool later =
          std::any_of(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(i),
                      [&](const auto& e) { return !e->done && e->group == entry.group && e->lane == entry.lane; });
      if (!later) moved |= advance(entry);
    }
    std::erase_if(entries_, [](const auto& entry) { return entry->done; });
    return moved;
  }

  bool advance(Entry& entry) {
    try {
      auto use = entry.use.lock();
      if (use->given_up) return false;  // what MPI still has of it stays in memory
      bool moved = false;
      while (!entry.in_flight || entry.request.done(*mpi_)) {
        if (std::exchange(entry.in_flight, false)) entry.job->end();
        moved = true;
        entry.moved = steady_seconds();
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
      if (!moved && steady_seconds() - entry.moved > settings_.timeout_s) {
        throw_hint(ErrorKind::unavailable, timeout_hint, "rank {} has waited {} s for other ranks in {}", mpi_->rank,
                   settings_.timeout_s, entry.what);
      }
      return moved;
    } catch (...) {
      fail(error_of_exception());
      return false;
    }
  }

  // Polls hard while something moves, then less and less: the processor is wanted elsewhere.
  void rest(bool moved) {
    idle_ = moved ? 0 : idle_ + 1;
    if (idle_ < 100) {
      std::this_thread::yield();
    } else if (!entries_.empty()) {
      std::this_thread::sleep_for(std::chrono::microseconds(idle_ < 1000 ? 20 : 200));
    } else {
      auto held = state_.lock();
      held.wait_for(0.02, [&](const State& state) {
        switch (state.wish) {
          case State::Wish::work: break;
          case State::Wish::finalize:
            if (!last_.pending()) return true;
            break;
          case State::Wish::tell_end:
            if (!told_end_) return true;
            break;
          case State::Wish::end_all: return true;
        }
        return !state.begun.empty() || (state.failure && !told_);
      });
    }
  }

  void receive_notice() {
    check(*mpi_, mpi_->receive(notices_, &notice_, sizeof notice_, INGOT_MPI_ANY, notice_request_.out()), "Irecv");
  }

  bool take_notice() {
    if (!notice_request_.pending() || !notice_request_.done(*mpi_)) return false;
    {
      auto held = state_.lock();
      if (notice_.ended != 0) {
        ++held->ended;
      } else if (!held->failure) {
        held->failure = {notice_.rank,
                         Error(static_cast<ErrorKind>(notice_.kind), notice_.message.data(), notice_.hint.data())};
        failure_ = held->failure;
        told_ = true;  // by the rank that failed
      }
    }
    state_.notify_all();
    receive_notice();
    return true;
  }

  // To all others. What is sent stays in memory until the end.
  void tell(bool ended) {
    (ended ? told_end_ : told_) = true;
    Notice notice{};
    notice.ended = ended ? 1 : 0;
    if (failure_) {
      notice.rank = failure_->rank;
      notice.kind = static_cast<int32_t>(failure_->error.kind());
      failure_->error.message().copy(notice.message.data(), notice.message.size() - 1);
      failure_->error.hint().copy(notice.hint.data(), notice.hint.size() - 1);
    }
    for (int rank = 0; rank < mpi_->size; ++rank) {
      if (rank == mpi_->rank) continue;
      told_notices_.push_back(std::make_unique<std::pair<Notice, Request>>(notice, Request()));
      auto& [sent, request] = *told_notices_.back();
      check(*mpi_, mpi_->send(notices_, &sent, sizeof sent, rank, request.out()), "Isend");
    }
  }

  // Whether all ranks have come to the end; MPI is then finalized.
  bool finalized() {
    if (!entries_.empty()) {
      throw_error(ErrorKind::internal, "rank {} ends and has not waited for {}", mpi_->rank, entries_.front()->what);
    }
    if (!last_.pending()) check(*mpi_, mpi_->barrier(notices_, last_.out()), "Ibarrier");
    if (!last_.done(*mpi_)) return false;
    notice_request_.cancel(*mpi_);
    check(*mpi_, mpi_->finalize(), "Finalize");
    return true;
  }

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
  std::vector<std::unique_ptr<std::pair<Notice, Request>>> told_notices_;
  Request last_;
  bool told_ = false;
  bool told_end_ = false;
  int64_t idle_ = 0;

  std::thread thread_;
};

class MpiOperation : public Channel::Operation {
 public:
  MpiOperation(std::shared_ptr<World> world, std::shared_ptr<Entry> entry)
      : world_(std::move(world)), entry_(std::move(entry)) {}
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;
  ~MpiOperation() override {
    if (entry_ != nullptr) entry_->use.lock()->given_up = true;
  }

  void wait() override {
    if (entry_ == nullptr) return;
    world_->wait(*entry_);
    entry_ = nullptr;
  }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Entry> entry_;
};

class MpiChannel : public Channel {
 public:
  MpiChannel(std::shared_ptr<World> world, ingot_mpi_group* group, int rank, int size, std::string name)
      : world_(std::move(world)), group_(group), rank_(rank), size_(size), name_(std::move(name)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Begun all_reduce(void* data, size_t count, Number number, Combine combine) override {
    std::vector<size_t> sections;
    const auto ranks = static_cast<size_t>(size_);
    for (size_t r = 0; r < ranks; ++r) sections.push_back(count * (r + 1) / ranks - count * r / ranks);
    return exchange("all_reduce", {sections, true, true, number, combine, size_of(number)}, data, data);
  }
  Begun reduce_scatter(void* own, const void* all, std::span<const size_t> counts, Number number,
                       Combine combine) override {
    return exchange("reduce_scatter", {sections(counts), true, false, number, combine, size_of(number)}, own, all);
  }
  Begun all_gather(void* all, const void* own, std::span<const size_t> bytes) override {
    return exchange("all_gather", {.sections = sections(bytes), .gather = true}, all, own);
  }
  Begun broadcast(void* data, size_t bytes, int root) override {
    return stretch("broadcast", 0, Stretch::Way::broadcast, peer(root), root == rank_, data, bytes);
  }
  Begun send(const void* data, size_t bytes, int to) override {
    // Of a source, Stretch only reads.
    return stretch("send", 1 + 2 * peer(to), Stretch::Way::send, to, true, const_cast<void*>(data), bytes);
  }
  Begun receive(void* data, size_t bytes, int from) override {
    return stretch("receive", 2 + 2 * peer(from), Stretch::Way::receive, from, false, data, bytes);
  }
  Begun barrier() override { return begin("barrier", 0, std::make_unique<Barrier>(group_)); }

  std::unique_ptr<Channel> split(int color, int key, const std::string& name) override {
    const auto part = std::make_shared<Split::Part>();
    begin("split", 0, std::make_unique<Split>(group_, color, key, part))->wait();
    return std::make_unique<MpiChannel>(world_, part->group, part->rank, part->size, name);
  }

  void fail(const Error& why) noexcept override { world_->fail(why); }

 private:
  Begun begin(const std::string& what, int lane, std::unique_ptr<Job> job) {
    return std::make_unique<MpiOperation>(
        world_, world_->begin(group_, lane, fmt::format("{} of '{}'", what, name_), std::move(job)));
  }
  Begun exchange(const char* what, Exchange::Form form, void* out, const void* in) {
    const std::string name =
        fmt::format("{} of {}", what, std::accumulate(form.sections.begin(), form.sections.end(), size_t{0}));
    return begin(name, 0, std::make_unique<Exchange>(group_, rank_, std::move(form), out, in));
  }
  Begun stretch(const char* what, int lane, Stretch::Way way, int peer, bool source, void* data, size_t bytes) {
    return begin(fmt::format("{} of {} bytes, rank {},", what, bytes, peer), lane,
                 std::make_unique<Stretch>(group_, way, peer, source, static_cast<std::byte*>(data), bytes));
  }
  std::vector<size_t> sections(std::span<const size_t> counts) const {
    if (counts.size() != static_cast<size_t>(size_)) {
      throw_error(ErrorKind::internal, "{} sections for {} ranks", counts.size(), size_);
    }
    return {counts.begin(), counts.end()};
  }
  int peer(int rank) const {
    if (rank < 0 || rank >= size_) throw_error(ErrorKind::internal, "rank {} of {} ranks", rank, size_);
    return rank;
  }

  std::shared_ptr<World> world_;
  ingot_mpi_group* group_;
  int rank_, size_;
  std::string name_;
};

// Kept past the end of run_mpi when ranks have failed: it ends all that are left when this process exits.
std::shared_ptr<World> deserted;

}  // namespace

std::filesystem::path find_mpi_plugin() {
  const char* named = std::getenv("INGOT_MPI");
  if (named != nullptr && *named != '\0') return named;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::filesystem::path& place : {folder, folder.parent_path() / "lib" / "ingot"}) {
    if (std::filesystem::exists(place / "libingot-mpi.so")) return place / "libingot-mpi.so";
  }
  throw_hint(ErrorKind::unavailable, "build it with the MPI that starts ingot: ./run mpi; or name it in INGOT_MPI",
             "there is no MPI plug-in libingot-mpi.so beside the executable or in ../lib/ingot");
}

void run_mpi(const Mpi& settings, FunctionRef<void(const Place&)> body) {
  const auto world = std::make_shared<World>(settings);
  const ingot_mpi& mpi = world->open();
  try {
    body({Group(std::make_shared<MpiChannel>(world, mpi.world, mpi.rank, mpi.size, "world")), mpi.local_rank,
          mpi.local_size});
    world->finalize();
  } catch (...) {
    world->fail(error_of_exception());
    world->leave();
    deserted = world;
    std::atexit([] { deserted->end_all(); });
    throw;
  }
}

}  // namespace ingot::comm
