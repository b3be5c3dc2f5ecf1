#include "comm/mpi.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/path.h"
#include "comm/combine.h"
#include "comm/failure.h"
#include "comm/mpi_jobs.h"
#include "comm/mpi_world.h"

namespace ingot::comm {

namespace {

class MpiOperation : public Transport::Operation {
 public:
  MpiOperation(std::shared_ptr<mpi::World> world, std::shared_ptr<mpi::Entry> entry)
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
  std::shared_ptr<mpi::World> world_;
  std::shared_ptr<mpi::Entry> entry_;
};

class MpiTransport : public Transport {
 public:
  MpiTransport(std::shared_ptr<mpi::World> world, ingot_mpi_group* group, int rank, int size, std::string name)
      : world_(std::move(world)), group_(group), rank_(rank), size_(size), name_(std::move(name)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  PendingOperation all_reduce(void* data, size_t count, Number number, ReduceOp combine) override {
    std::vector<size_t> sections;
    const auto ranks = static_cast<size_t>(size_);
    for (size_t r = 0; r < ranks; ++r) sections.push_back(count * (r + 1) / ranks - count * r / ranks);
    return exchange("all_reduce", {sections, true, true, number, combine, size_of(number)}, data, data);
  }
  PendingOperation reduce_scatter(void* own, const void* all, std::span<const size_t> counts, Number number,
                                  ReduceOp combine) override {
    return exchange("reduce_scatter", {sections(counts), true, false, number, combine, size_of(number)}, own, all);
  }
  PendingOperation all_gather(void* all, const void* own, std::span<const size_t> bytes) override {
    return exchange("all_gather", {.sections = sections(bytes), .gather = true}, all, own);
  }
  PendingOperation broadcast(void* data, size_t bytes, int root) override {
    return transfer("broadcast", bytes, peer(root), 0, mpi::broadcast(group_, rank_, root, data, bytes));
  }
  PendingOperation send(const void* data, size_t bytes, int to) override {
    return transfer("send", bytes, to, 1 + 2 * peer(to), mpi::send(group_, to, data, bytes));
  }
  PendingOperation receive(void* data, size_t bytes, int from) override {
    return transfer("receive", bytes, from, 2 + 2 * peer(from), mpi::receive(group_, from, data, bytes));
  }
  PendingOperation barrier() override { return begin("barrier", 0, mpi::barrier(group_)); }

  std::unique_ptr<Transport> split(int color, int key, const std::string& name) override {
    const auto result = std::make_shared<mpi::SplitResult>();
    begin("split", 0, mpi::split(group_, color, key, result))->wait();
    return std::make_unique<MpiTransport>(world_, result->group, result->rank, result->size, name);
  }

  void require_running() override { world_->require_running(); }
  void note(std::string activity) override { world_->note(std::move(activity)); }
  std::string behind() override { return world_->behind(); }
  void fail(const Error& why) noexcept override { world_->fail(why); }

 private:
  PendingOperation begin(const std::string& what, int lane, std::unique_ptr<mpi::Job> job) {
    return std::make_unique<MpiOperation>(
        world_, world_->begin(group_, lane, fmt::format("{} of '{}'", what, name_), std::move(job)));
  }
  PendingOperation exchange(const char* what, mpi::Collective collective, void* out, const void* in) {
    const std::string name = fmt::format(
        "{} of {}", what, std::accumulate(collective.sections.begin(), collective.sections.end(), size_t{0}));
    return begin(name, 0, mpi::exchange(group_, rank_, std::move(collective), out, in));
  }
  PendingOperation transfer(const char* what, size_t bytes, int peer, int lane, std::unique_ptr<mpi::Job> job) {
    return begin(fmt::format("{} of {} bytes, rank {},", what, bytes, peer), lane, std::move(job));
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

  std::shared_ptr<mpi::World> world_;
  ingot_mpi_group* group_;
  int rank_, size_;
  std::string name_;
};

// Kept after the end of run_mpi when a rank has failed: it ends all remaining processes when this process exits.
std::shared_ptr<mpi::World> failed_world;

}  // namespace

std::filesystem::path find_mpi_plugin() {
  const char* named = environment("INGOT_MPI");
  if (named != nullptr && *named != '\0') return named;
  const std::filesystem::path folder = executable_path().parent_path();
  for (const std::filesystem::path& candidate : {folder, folder.parent_path() / "lib" / "ingot"}) {
    if (path_exists(candidate / "libingot-mpi.so")) return candidate / "libingot-mpi.so";
  }
  throw_hint(ErrorKind::unavailable, "build it with the MPI that starts ingot: ./run mpi; or name it in INGOT_MPI",
             "there is no MPI plug-in libingot-mpi.so beside the executable or in ../lib/ingot");
}

void run_mpi(const Mpi& settings, FunctionRef<void(const MpiRank&)> body) {
  const auto world = std::make_shared<mpi::World>(settings);
  const ingot_mpi& mpi = world->open();
  try {
    body({Group(std::make_shared<MpiTransport>(world, mpi.world, mpi.rank, mpi.size, "world")), mpi.local_rank,
          mpi.local_size});
    world->finalize();
  } catch (...) {
    world->fail(error_of_exception());
    world->leave();
    failed_world = world;
    std::atexit([] { failed_world->end_all(); });
    throw;
  }
}

}  // namespace ingot::comm
