// Checkpoints of a run in an object store: ADDRESS/step-N/FILE, the files of the folder step-N as checkpoint/native.h
// writes them, its manifest last: a step without one is not there. Behind it comes ADDRESS/latest, the line "step-N".
//
// One process writes there at a time: the one that has the run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/store.h"

namespace ingot::checkpoint {

// The files of the checkpoint folder/step-`step`, open: they can be read also when the folder is removed.
struct OpenFiles {
  // Those that its manifest names, and no others that lie there. Errors: not_found for one that is missing; corrupt for
  // one of another size, and for a damaged manifest.
  OpenFiles(const std::filesystem::path& folder, int64_t step);
  int64_t step = 0;
  std::vector<MappedFile> files;  // the manifest last
  uint64_t bytes = 0;
};

class RemoteCheckpoints {
 public:
  // `address`: as open_store's. The store is opened, and credentials read, anew for everything that is done.
  explicit RemoteCheckpoints(std::string address, StoreOptions options = {});

  std::string uri(int64_t step) const;
  const std::string& address() const { return address_; }

  // That objects can be written and removed there. Errors: as Store::put.
  void require_writable() const;
  // For the start of a run: removes the parts of uploads that never ended. Returns of how many.
  int64_t drop_unfinished() const;
  // The same of objects of checkpoints that have no manifest. Then `latest` is what it should be. Leaves all as it is
  // of a newest one whose manifest was lost.
  int64_t remove_half_written() const;
  // Steps whose manifest is there, ascending.
  std::vector<int64_t> list() const;
  // Whether there is one, be it one whose manifest was lost.
  bool any() const;

  // Puts a checkpoint there, then removes all but the newest `keep`. `go_on` is asked now and then, in any thread; it
  // ends (unavailable) when it says no. Returns what went wrong when the checkpoint was there already, so that `latest`
  // or older ones are not as they should be; empty when all is well. Errors: as Store::put; unavailable when another
  // process has removed what was put, or replaced it by something of another size.
  std::string upload(const OpenFiles& files, int64_t keep, const std::function<bool()>& go_on) const;

  struct Newest {
    std::optional<int64_t> stored;   // of list()
    std::optional<int64_t> brought;  // the same, when it was not in the folder
  };
  // Brings the newest one to folder/step-N when the folder has none that is as new. What a killed run left in the
  // folder is removed before. `accept(shown, metadata)` may refuse the newest, by throwing, before anything is fetched;
  // one that is not brought and whose manifest is damaged is not asked about. What comes damaged is fetched once more.
  // Errors: corrupt, naming the file and what is wrong with it, also when `latest` names a newer one of which there are
  // files but no manifest (an earlier one is never taken instead: the hint names it); resource for a full disk; as
  // Store::get_file. `go_on`: as in upload.
  Newest bring_newest(const std::filesystem::path& folder,
                      const std::function<void(const std::string&, const std::string&)>& accept,
                      const std::function<bool()>& go_on) const;

 private:
  struct Listing;
  Listing look(const Store& store) const;
  std::unique_ptr<Store> open(const std::function<bool()>& go_on) const;

  std::string address_;
  StoreOptions options_;
};

}  // namespace ingot::checkpoint
