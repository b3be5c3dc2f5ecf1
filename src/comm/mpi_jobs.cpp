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

// Each round handles one piece of every section. Reduce: each rank receives its section's piece from all ranks and
// combines them in rank order. Gather: each rank sends its section's piece to all ranks.
class ExchangeJob : public Job {
 public:
  ExchangeJob(ingot_mpi_group* group, int rank, Exchange form, void* out, const void* in)
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
          throw_error(ErrorKind::internal, "a sum of integers over {} ranks overflows", counts_.size());
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
  // Elements of section r in this round.
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
  Exchange form_;
  std::byte* out_;
  const std::byte* in_;
  size_t piece_;    // elements of a section per round
  size_t longest_;  // elements of the longest section
  size_t done_ = 0;
  bool reduced_ = false;  // this round has been reduced and not yet gathered
  std::vector<size_t> firsts_;
  std::vector<int> counts_, own_counts_, at_;  // bytes
  std::vector<std::byte> own_, all_, parts_;
};

// A contiguous block of bytes that is sent, received or broadcast.
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
  std::byte* data_;  // only read when this rank is the source
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

// Starts MPI's split only after a barrier of all ranks: the split blocks inside MPI, where no timeout applies.
class Split : public Job {
 public:
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

}  // namespace

std::unique_ptr<Job> exchange(ingot_mpi_group* group, int rank, Exchange form, void* out, const void* in) {
  return std::make_unique<ExchangeJob>(group, rank, std::move(form), out, in);
}

std::unique_ptr<Job> send(ingot_mpi_group* group, int to, const void* data, size_t bytes) {
  // Stretch only reads the memory of a source.
  auto* source = static_cast<std::byte*>(const_cast<void*>(data));
  return std::make_unique<Stretch>(group, Stretch::Way::send, to, true, source, bytes);
}

std::unique_ptr<Job> receive(ingot_mpi_group* group, int from, void* data, size_t bytes) {
  return std::make_unique<Stretch>(group, Stretch::Way::receive, from, false, static_cast<std::byte*>(data), bytes);
}

std::unique_ptr<Job> broadcast(ingot_mpi_group* group, int rank, int root, void* data, size_t bytes) {
  return std::make_unique<Stretch>(group, Stretch::Way::broadcast, root, root == rank, static_cast<std::byte*>(data),
                                   bytes);
}

std::unique_ptr<Job> barrier(ingot_mpi_group* group) { return std::make_unique<Barrier>(group); }

std::unique_ptr<Job> split(ingot_mpi_group* group, int color, int key, std::shared_ptr<Part> part) {
  return std::make_unique<Split>(group, color, key, std::move(part));
}

}  // namespace ingot::comm::mpi
