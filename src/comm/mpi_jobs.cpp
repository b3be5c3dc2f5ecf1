#include "comm/mpi_jobs.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "comm/combine.h"

namespace ingot::comm::mpi {

void check(const ingot_mpi& mpi, int error, const char* what) {
  if (error == 0) return;
  std::array<char, 512> text{};
  mpi.describe(error, text.data(), static_cast<int>(text.size()));
  throw_error(ErrorKind::unavailable, "MPI's {} failed: {}", what, text.data());
}

bool Request::done(const ingot_mpi& mpi) {
  int done = 0;
  check(mpi, mpi.test(request_, &done), "test");
  if (done != 0) request_ = nullptr;
  return done != 0;
}

namespace {

// Size of an operation's own buffers. MPI uses only these, because an operation can be given up while MPI works on it.
constexpr size_t staged_bytes = size_t{4} << 20;

using Buffer = std::vector<std::byte>;

// Each round handles one chunk of every section. Reduce: each rank receives its section's chunk from all ranks and
// combines them in rank order. Gather: each rank sends its section's chunk to all ranks.
class ExchangeJob : public Job {
 public:
  ExchangeJob(ingot_mpi_group* group, int rank, Collective collective, void* out, const void* in)
      : group_(group),
        rank_(static_cast<size_t>(rank)),
        exchange_(std::move(collective)),
        out_(static_cast<std::byte*>(out)),
        in_(static_cast<const std::byte*>(in)),
        chunk_(std::max<size_t>(staged_bytes / exchange_.sections.size() / exchange_.width, 1)),
        longest_(*std::max_element(exchange_.sections.begin(), exchange_.sections.end())) {
    const size_t ranks = exchange_.sections.size();
    counts_.resize(ranks);
    local_counts_.resize(ranks);
    offsets_.resize(ranks);
    for (size_t r = 0; r < ranks; ++r) offsets_[r] = static_cast<int>(r * max_bytes());
    size_t begin = 0;
    for (const size_t section : exchange_.sections) {
      section_begins_.push_back(begin);
      begin += section;
    }
  }

  bool begin(const ingot_mpi& mpi, Request& request) override {
    if (done_ >= longest_) {
      for (Buffer* buffer : {&local_, &all_, &received_}) Buffer().swap(*buffer);  // frees it
      return false;
    }
    if (done_ == 0 && !reduced_) {
      local_.resize(max_bytes());
      all_.resize(max_bytes() * counts_.size());
      if (exchange_.reduce) received_.resize(max_bytes() * counts_.size());
    }
    for (size_t r = 0; r < counts_.size(); ++r) {
      counts_[r] = static_cast<int>(elements(r) * exchange_.width);
      local_counts_[r] = static_cast<int>(elements(rank_) * exchange_.width);
    }
    if (exchange_.reduce && !reduced_) {
      for (size_t r = 0; r < counts_.size(); ++r)
        copy(&all_[offset(r)], in_ + byte_offset(section_begins_[r] + done_), counts_[r]);
      check(mpi,
            mpi.all_to_all(group_, all_.data(), counts_.data(), offsets_.data(), received_.data(), local_counts_.data(),
                           offsets_.data(), request.out()),
            "Ialltoallv");
    } else {
      if (!exchange_.reduce) copy(local_.data(), in_ + byte_offset(done_), counts_[rank_]);
      check(mpi,
            mpi.all_gather(group_, local_.data(), counts_[rank_], all_.data(), counts_.data(), offsets_.data(),
                           request.out()),
            "Iallgatherv");
    }
    return true;
  }

  void end() override {
    if (exchange_.reduce && !reduced_) {
      const size_t count = elements(rank_);
      copy(local_.data(), received_.data(), counts_[rank_]);
      for (size_t r = 1; r < counts_.size(); ++r) {
        if (!combine(local_.data(), &received_[offset(r)], count, exchange_.number, exchange_.combine)) {
          throw_error(ErrorKind::internal, "a sum of integers over {} ranks overflows", counts_.size());
        }
      }
      if (exchange_.gather) {
        reduced_ = true;
        return;
      }
      copy(out_ + byte_offset(done_), local_.data(), counts_[rank_]);
    } else {
      for (size_t r = 0; r < counts_.size(); ++r)
        copy(out_ + byte_offset(section_begins_[r] + done_), &all_[offset(r)], counts_[r]);
      reduced_ = false;
    }
    done_ += chunk_;
  }

 private:
  // Elements of section r in this round.
  size_t elements(size_t r) const {
    return exchange_.sections[r] > done_ ? std::min(chunk_, exchange_.sections[r] - done_) : 0;
  }
  size_t max_bytes() const { return std::min(chunk_, longest_) * exchange_.width; }  // of a section in a round
  size_t byte_offset(size_t element) const { return element * exchange_.width; }
  size_t offset(size_t r) const { return static_cast<size_t>(offsets_[r]); }
  static void copy(std::byte* to, const std::byte* from, int bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  ingot_mpi_group* group_;
  size_t rank_;
  Collective exchange_;
  std::byte* out_;
  const std::byte* in_;
  size_t chunk_;    // elements of a section per round
  size_t longest_;  // elements of the longest section
  size_t done_ = 0;
  bool reduced_ = false;  // this round has been reduced and not yet gathered
  std::vector<size_t> section_begins_;
  std::vector<int> counts_, local_counts_, offsets_;  // bytes
  Buffer local_, all_, received_;
};

// A contiguous block of bytes that is sent, received or broadcast.
class ByteTransfer : public Job {
 public:
  enum class Direction { send, receive, broadcast };
  ByteTransfer(ingot_mpi_group* group, Direction direction, int peer, bool source, std::byte* data, size_t bytes)
      : group_(group), direction_(direction), peer_(peer), source_(source), data_(data), bytes_(bytes) {}

  bool begin(const ingot_mpi& mpi, Request& request) override {
    if (done_ >= bytes_) {
      Buffer().swap(staged_);  // frees it
      return false;
    }
    if (done_ == 0) staged_.resize(std::min(bytes_, staged_bytes));
    const int count = static_cast<int>(chunk());
    if (source_) std::memcpy(staged_.data(), data_ + done_, chunk());
    switch (direction_) {
      case Direction::send: check(mpi, mpi.send(group_, staged_.data(), count, peer_, request.out()), "Isend"); break;
      case Direction::receive:
        check(mpi, mpi.receive(group_, staged_.data(), count, peer_, request.out()), "Irecv");
        break;
      case Direction::broadcast:
        check(mpi, mpi.broadcast(group_, staged_.data(), count, peer_, request.out()), "Ibcast");
    }
    return true;
  }
  void end() override {
    if (!source_) std::memcpy(data_ + done_, staged_.data(), chunk());
    done_ += chunk();
  }

 private:
  size_t chunk() const { return std::min(staged_.size(), bytes_ - done_); }

  ingot_mpi_group* group_;
  Direction direction_;
  int peer_;
  bool source_;
  std::byte* data_;  // only read when this rank is the source
  size_t bytes_;
  size_t done_ = 0;
  Buffer staged_;
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

// Starts MPI's split only after a barrier of all ranks: the split blocks inside MPI, where no timeout applies.
class Split : public Job {
 public:
  Split(ingot_mpi_group* group, int color, int key, std::shared_ptr<SplitResult> result)
      : barrier_(group), group_(group), color_(color), key_(key), result_(std::move(result)) {}
  bool begin(const ingot_mpi& mpi, Request& request) override {
    if (barrier_.begin(mpi, request)) return true;
    check(mpi, mpi.split(group_, color_, key_, &result_->group), "Comm_split");
    check(mpi, mpi.place(result_->group, &result_->rank, &result_->size), "Comm_rank");
    return false;
  }
  void end() override { barrier_.end(); }

 private:
  Barrier barrier_;
  ingot_mpi_group* group_;
  int color_, key_;
  std::shared_ptr<SplitResult> result_;
};

}  // namespace

std::unique_ptr<Job> exchange(ingot_mpi_group* group, int rank, Collective collective, void* out, const void* in) {
  return std::make_unique<ExchangeJob>(group, rank, std::move(collective), out, in);
}

std::unique_ptr<Job> send(ingot_mpi_group* group, int to, const void* data, size_t bytes) {
  // ByteTransfer only reads the memory of a source.
  auto* source = static_cast<std::byte*>(const_cast<void*>(data));
  return std::make_unique<ByteTransfer>(group, ByteTransfer::Direction::send, to, true, source, bytes);
}

std::unique_ptr<Job> receive(ingot_mpi_group* group, int from, void* data, size_t bytes) {
  return std::make_unique<ByteTransfer>(group, ByteTransfer::Direction::receive, from, false,
                                        static_cast<std::byte*>(data), bytes);
}

std::unique_ptr<Job> broadcast(ingot_mpi_group* group, int rank, int root, void* data, size_t bytes) {
  return std::make_unique<ByteTransfer>(group, ByteTransfer::Direction::broadcast, root, root == rank,
                                        static_cast<std::byte*>(data), bytes);
}

std::unique_ptr<Job> barrier(ingot_mpi_group* group) { return std::make_unique<Barrier>(group); }

std::unique_ptr<Job> split(ingot_mpi_group* group, int color, int key, std::shared_ptr<SplitResult> result) {
  return std::make_unique<Split>(group, color, key, std::move(result));
}

}  // namespace ingot::comm::mpi
