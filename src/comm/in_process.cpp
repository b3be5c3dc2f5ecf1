#include "comm/in_process.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/machine.h"
#include "base/mutex.h"
#include "base/signals.h"
#include "comm/combine.h"
#include "comm/failure.h"
#include "comm/roll_call.h"

namespace ingot::comm {

namespace {

// The description of a collective operation; equal on all ranks.
struct Call {
  enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, barrier };
  Kind kind;
  std::vector<size_t> sections;  // per rank: elements (reduce_scatter) or bytes (all_gather); else a single one
  Number number = Number::i32;
  ReduceOp combine = ReduceOp::sum;
  int root = 0;

  friend bool operator==(const Call&, const Call&) = default;
  const char* name() const {
    constexpr std::array names{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"};
    return names[static_cast<size_t>(kind)];
  }
  size_t total() const {
    size_t sum = 0;
    for (const size_t section : sections) sum += section;
    return sum;
  }
};

struct Memory {
  std::byte* out = nullptr;
  const std::byte* in = nullptr;
};

// A collective operation that some ranks have started. Once all have, its work is cut into shares, and each waiting
// rank runs shares that no rank has started yet, so that a rank that is busy elsewhere delays nobody.
struct Collective {
  Call call;
  std::vector<std::optional<Memory>> memory;  // by rank
  size_t come = 0;
  size_t shares = 1;
  size_t next = 0;    // the first share that no rank has started
  size_t active = 0;  // shares that are running
  size_t done = 0;
  size_t left = 0;        // ranks that no longer need it
  bool given_up = false;  // a rank left before all had joined

  bool ready() const { return come == memory.size() && !given_up; }
  bool finished() const { return ready() && done == shares; }
};

using Message = std::vector<std::byte>;

// From one rank to another. A receive gets the message of its own number, whenever it is waited for.
struct Channel {
  uint64_t num_sent = 0, num_receives = 0;
  std::map<uint64_t, Message> messages;  // by number: those that were not received yet
};

// The shared state of one group's ranks.
struct GroupState {
  std::string name;
  std::vector<uint64_t> next;                       // by rank: number of its next collective operation
  std::map<uint64_t, Collective> collectives;       // by number: operations that are not finished
  std::map<std::pair<int, int>, Channel> channels;  // by (from, to); references to them stay valid
  std::map<std::pair<uint64_t, int>, std::shared_ptr<GroupState>> parts;  // by (number of the split, color)
};

// The state that all ranks share. There is one lock; long work is done outside it.
struct State {
  std::optional<Failure> failure;
  int running = 0;
  std::vector<std::string> notes;  // by rank of the world
};

struct World {
  explicit World(double timeout_s) : timeout_s(timeout_s) {}
  const double timeout_s;
  Guarded<State> state;  // its lock also guards all teams

  void fail(int rank, const Error& error) {
    {
      auto held = state.lock();
      if (!held->failure) held->failure = {rank, error};
    }
    state.notify_all();
  }
};

// Reduces elements [lo, hi), a block at a time, so that the blocks of all ranks fit in a cache.
bool reduce(const Collective& c, size_t lo, size_t hi) {
  constexpr size_t block = 2048;
  alignas(64) std::array<std::byte, block * sizeof(int64_t)> sum;
  const size_t width = size_of(c.call.number);
  bool fits = true;
  for (size_t begin = lo; begin < hi; begin += block) {
    const size_t count = std::min(block, hi - begin);
    std::memcpy(sum.data(), c.memory[0]->in + begin * width, count * width);
    for (size_t rank = 1; rank < c.memory.size(); ++rank) {
      fits &= combine(sum.data(), c.memory[rank]->in + begin * width, count, c.call.number, c.call.combine);
    }
    if (c.call.kind == Call::Kind::all_reduce) {
      for (const auto& memory : c.memory) std::memcpy(memory->out + begin * width, sum.data(), count * width);
      continue;
    }
    size_t section = 0;
    for (size_t rank = 0; rank < c.memory.size(); ++rank) {
      const size_t from = std::max(begin, section);
      const size_t to = std::min(begin + count, section + c.call.sections[rank]);
      if (from < to) {
        std::memcpy(c.memory[rank]->out + (from - section) * width, sum.data() + (from - begin) * width,
                    (to - from) * width);
      }
      section += c.call.sections[rank];
    }
  }
  return fits;
}

// Copies bytes [lo, hi) of the result to all ranks.
void copy(const Collective& c, size_t lo, size_t hi) {
  size_t section = 0;
  for (size_t s = 0; s < c.call.sections.size(); ++s) {
    const bool gather = c.call.kind == Call::Kind::all_gather;
    const std::byte* source = c.memory[gather ? s : static_cast<size_t>(c.call.root)]->in;
    const size_t from = std::max(lo, section);
    const size_t to = std::min(hi, section + c.call.sections[s]);
    for (const auto& memory : c.memory) {
      if (from < to && memory->out + from != source + (from - section)) {
        std::memcpy(memory->out + from, source + (from - section), to - from);
      }
    }
    section += c.call.sections[s];
  }
}

// Runs one share. False when an integer sum overflowed.
bool work(const Collective& c, size_t share) {
  const size_t total = c.call.total();
  const size_t lo = total * share / c.shares;
  const size_t hi = total * (share + 1) / c.shares;
  switch (c.call.kind) {
    case Call::Kind::all_reduce:
    case Call::Kind::reduce_scatter: return reduce(c, lo, hi);
    case Call::Kind::all_gather:
    case Call::Kind::broadcast: copy(c, lo, hi); return true;
    case Call::Kind::barrier: return true;
  }
  return true;
}

// One rank's view of a team.
struct Member {
  std::shared_ptr<World> world;
  std::shared_ptr<GroupState> group;
  std::vector<int> world_ranks;  // of the team's ranks
  int rank;

  size_t size() const { return world_ranks.size(); }
  int world_rank() const { return world_ranks[static_cast<size_t>(rank)]; }
};

// Waits until `ready()` or a failure. Throws on a failure, including its own timeout.
template <class Ready, class Missing>
void wait_until(const Member& member, Ready ready, Missing missing) {
  World& world = *member.world;
  std::optional<Error> late;
  {
    auto held = world.state.lock();
    const bool come = held.wait_for(world.timeout_s, [&](State& state) { return state.failure || ready(); });
    if (held->failure) throw_failure(*held->failure);
    if (come) return;
    late.emplace(ErrorKind::unavailable,
                 fmt::format("rank {} of '{}' has waited {} s for {}", member.rank, member.group->name, world.timeout_s,
                             missing()),
                 timeout_hint);
  }
  world.fail(member.world_rank(), *late);
  throw Error(*late);
}

class CollectiveOperation : public Transport::Operation {
 public:
  CollectiveOperation(const Member& member, const Call& call, Memory memory) : member_(member) {
    std::optional<Error> fault;
    {
      auto held = member.world->state.lock();
      if (held->failure) throw_failure(*held->failure);
      GroupState& group = *member.group;
      number_ = group.next[static_cast<size_t>(member.rank)]++;
      Collective& c = group.collectives[number_];
      if (c.memory.empty()) {
        c.call = call;
        c.memory.resize(member.size());
        c.shares = call.total() < size_t{16} << 10 ? 1 : member.size();
      }
      if (c.call != call) {
        fault.emplace(ErrorKind::internal,
                      fmt::format("operation {} of '{}' is {} of {} on rank {}, but {} of {} on other ranks", number_,
                                  group.name, call.name(), call.total(), member.rank, c.call.name(), c.call.total()));
      } else {
        c.memory[static_cast<size_t>(member.rank)] = memory;
        ++c.come;
        collective_ = &c;
      }
    }
    if (fault) {
      member.world->fail(member.world_rank(), *fault);
      throw Error(*fault);
    }
    member.world->state.notify_all();
  }

  CollectiveOperation(const CollectiveOperation&) = delete;
  CollectiveOperation& operator=(const CollectiveOperation&) = delete;

  // Other ranks must not access this rank's memory after this returns: an operation that some ranks have not joined is
  // given up, and running shares are waited for.
  ~CollectiveOperation() override {
    if (collective_ == nullptr) return;
    auto held = member_.world->state.lock();
    if (collective_->come < member_.size()) collective_->given_up = true;
    if (collective_->ready()) collective_->next = collective_->shares;  // the remaining shares will not be started
    held.wait([&](State&) { return collective_->active == 0; });
    leave();
  }

  void wait() override {
    if (collective_ == nullptr) return;
    Collective& c = *collective_;
    wait_until(member_, [&] { return c.ready(); }, [&] { return missing(); });
    for (std::optional<size_t> share = begin_share(); share; share = begin_share()) {
      const bool fits = work(c, *share);
      {
        auto held = member_.world->state.lock();
        --c.active;
        ++c.done;
      }
      if (!fits) {
        member_.world->fail(member_.world_rank(),
                            Error(ErrorKind::internal, fmt::format("a sum of {} integers over {} ranks overflows",
                                                                   c.call.total(), member_.size())));
      }
      member_.world->state.notify_all();
    }
    wait_until(member_, [&] { return c.finished(); }, [&] { return std::string("another rank's share of the work"); });
    auto held = member_.world->state.lock();
    leave();
  }

 private:
  std::optional<size_t> begin_share() {
    auto held = member_.world->state.lock();
    if (held->failure || collective_->next == collective_->shares) return std::nullopt;
    ++collective_->active;
    return collective_->next++;
  }

  std::string missing() const {
    std::string ranks;
    for (size_t rank = 0; rank < member_.size(); ++rank) {
      if (!collective_->memory[rank]) ranks += fmt::format("{}rank {}", ranks.empty() ? "" : ", ", rank);
    }
    return fmt::format("{} to reach operation {}, {} of {}", ranks, number_, collective_->call.name(),
                       collective_->call.total());
  }

  void leave() {  // under the lock
    if (++collective_->left == member_.size()) member_.group->collectives.erase(number_);
    collective_ = nullptr;
  }

  Member member_;
  uint64_t number_ = 0;
  Collective* collective_ = nullptr;
};

class ReceiveOperation : public Transport::Operation {
 public:
  ReceiveOperation(const Member& member, void* data, size_t bytes, int from)
      : member_(member), data_(data), bytes_(bytes), from_(from) {
    auto held = member_.world->state.lock();
    channel_ = &member_.group->channels[{from_, member_.rank}];
    number_ = channel_->num_receives++;
  }

  void wait() override {
    if (mismatch_) throw *mismatch_;
    if (over_) return;
    wait_until(
        member_, [&] { return channel_->messages.contains(number_); },
        [&] { return fmt::format("a message of {} bytes from rank {}", bytes_, from_); });
    Message message;
    {
      auto held = member_.world->state.lock();
      message = std::move(channel_->messages.extract(number_).mapped());
    }
    if (message.size() != bytes_) {
      mismatch_ =
          Error(ErrorKind::internal, fmt::format("rank {} of '{}' received {} bytes from rank {}, expected {}",
                                                 member_.rank, member_.group->name, message.size(), from_, bytes_));
      throw *mismatch_;
    }
    over_ = true;
    std::copy(message.begin(), message.end(), static_cast<std::byte*>(data_));
  }

 private:
  Member member_;
  void* data_;
  size_t bytes_;
  int from_;
  Channel* channel_ = nullptr;
  uint64_t number_ = 0;
  bool over_ = false;
  std::optional<Error> mismatch_;  // the message has another size: waiting again fails again
};

// Done when it starts: the message is a copy of the data.
class SentOperation : public Transport::Operation {
 public:
  void wait() override {}
};

class InProcessTransport : public Transport {
 public:
  explicit InProcessTransport(Member member) : member_(std::move(member)) {}

  int rank() const override { return member_.rank; }
  int size() const override { return static_cast<int>(member_.size()); }

  PendingOperation all_reduce(void* data, size_t count, Number number, ReduceOp combine) override {
    return begin({Call::Kind::all_reduce, {count}, number, combine}, data, data);
  }
  PendingOperation reduce_scatter(void* own, const void* all, std::span<const size_t> counts, Number number,
                                  ReduceOp combine) override {
    return begin({Call::Kind::reduce_scatter, sections(counts), number, combine}, own, all);
  }
  PendingOperation all_gather(void* all, const void* own, std::span<const size_t> bytes) override {
    return begin({Call::Kind::all_gather, sections(bytes)}, all, own);
  }
  PendingOperation broadcast(void* data, size_t bytes, int root) override {
    Call call{Call::Kind::broadcast, {bytes}};
    call.root = peer(root);
    return begin(call, data, data);
  }
  PendingOperation send(const void* data, size_t bytes, int to) override {
    const auto* begin = static_cast<const std::byte*>(data);
    Message message(begin, begin + bytes);
    {
      auto held = member_.world->state.lock();
      if (held->failure) throw_failure(*held->failure);
      Channel& channel = member_.group->channels[{member_.rank, peer(to)}];
      channel.messages.emplace(channel.num_sent++, std::move(message));
    }
    member_.world->state.notify_all();
    return std::make_unique<SentOperation>();
  }
  PendingOperation receive(void* data, size_t bytes, int from) override {
    return std::make_unique<ReceiveOperation>(member_, data, bytes, peer(from));
  }
  PendingOperation barrier() override { return begin({Call::Kind::barrier, {0}}, nullptr, nullptr); }

  std::unique_ptr<Transport> split(int color, int key, const std::string& name) override {
    struct SplitEntry {
      int color, key, rank;
    };
    std::vector<SplitEntry> entries(member_.size());
    const SplitEntry own_entry{color, key, member_.rank};
    all_gather(entries.data(), &own_entry, std::vector<size_t>(member_.size(), sizeof own_entry))->wait();
    std::erase_if(entries, [&](const SplitEntry& entry) { return entry.color != color; });
    std::sort(entries.begin(), entries.end(), [](const SplitEntry& a, const SplitEntry& b) {
      return std::pair(a.key, a.rank) < std::pair(b.key, b.rank);
    });
    Member part{member_.world, nullptr, {}, 0};
    for (const SplitEntry& entry : entries) {
      if (entry.rank == member_.rank) part.rank = static_cast<int>(part.world_ranks.size());
      part.world_ranks.push_back(member_.world_ranks[static_cast<size_t>(entry.rank)]);
    }
    {
      auto held = member_.world->state.lock();
      GroupState& group = *member_.group;
      std::shared_ptr<GroupState>& shared = group.parts[{group.next[static_cast<size_t>(member_.rank)], color}];
      if (shared == nullptr) {
        shared = std::make_shared<GroupState>();
        shared->name = name;
        shared->next.resize(part.size());
      }
      part.group = shared;
    }
    return std::make_unique<InProcessTransport>(std::move(part));
  }

  void require_running() override {
    auto held = member_.world->state.lock();
    if (held->failure) throw_failure(*held->failure);
  }
  void note(std::string activity) override {
    auto held = member_.world->state.lock();
    held->notes[static_cast<size_t>(member_.world_rank())] = std::move(activity);
  }
  std::string behind() override {
    const std::vector<std::string> all = notes();
    RollCall call(member_.world_rank(), std::vector<std::string>(all.size(), host_name()), 0);
    for (size_t rank = 0; rank < all.size(); ++rank) call.answer(static_cast<int>(rank), all[rank]);
    return call.behind(all[static_cast<size_t>(member_.world_rank())]);
  }
  void fail(const Error& why) noexcept override { member_.world->fail(member_.world_rank(), why); }

 private:
  std::vector<std::string> notes() const {
    auto held = member_.world->state.lock();
    return held->notes;
  }
  PendingOperation begin(const Call& call, void* out, const void* in) {
    return std::make_unique<CollectiveOperation>(
        member_, call, Memory{static_cast<std::byte*>(out), static_cast<const std::byte*>(in)});
  }
  std::vector<size_t> sections(std::span<const size_t> counts) const {
    if (counts.size() != member_.size()) {
      throw_error(ErrorKind::internal, "{} sections for {} ranks", counts.size(), member_.size());
    }
    return {counts.begin(), counts.end()};
  }
  int peer(int rank) const {
    if (rank < 0 || rank >= size()) throw_error(ErrorKind::internal, "rank {} of {} ranks", rank, size());
    return rank;
  }

  Member member_;
};

}  // namespace

void run_in_process(const InProcess& settings, FunctionRef<void(const Group&)> body) {
  if (settings.ranks < 1) throw_error(ErrorKind::usage, "cannot run {} ranks; at least 1 is needed", settings.ranks);
  if (settings.ranks == 1) return body(Group());
  const auto world = std::make_shared<World>(settings.timeout_s);
  world->state.lock()->notes.assign(static_cast<size_t>(settings.ranks), RollCall::nothing);
  const auto group = std::make_shared<GroupState>();
  group->name = "world";
  group->next.resize(static_cast<size_t>(settings.ranks));
  std::vector<int> ranks;
  for (int rank = 0; rank < settings.ranks; ++rank) ranks.push_back(rank);

  const auto run_rank = [&](int rank) {
    try {
      body(Group(std::make_shared<InProcessTransport>(Member{world, group, ranks, rank})));
    } catch (...) {
      world->fail(rank, error_of_exception());
    }
    {
      auto held = world->state.lock();
      --held->running;
    }
    world->state.notify_all();
  };
  std::vector<std::thread> threads;
  {
    const BlockedSignals blocked;
    for (const int rank : ranks) {
      {
        auto held = world->state.lock();
        ++held->running;
      }
      try {
        threads.emplace_back(run_rank, rank);
      } catch (const std::exception& refused) {
        {
          auto held = world->state.lock();
          --held->running;
        }
        world->fail(rank, Error(ErrorKind::resource, fmt::format("cannot start a thread: {}", refused.what())));
        break;
      }
    }
  }
  {
    auto held = world->state.lock();
    held.wait([](const State& state) { return state.running == 0 || state.failure; });
    const auto ended = [](const State& state) { return state.running == 0; };
    if (!held.wait_for(settings.timeout_s, ended) && settings.stuck) {
      settings.stuck(held->failure->of_rank());
    }
  }
  for (std::thread& thread : threads) thread.join();
  auto held = world->state.lock();
  if (!held->failure) return;
  throw held->failure->of_rank();
}

}  // namespace ingot::comm
