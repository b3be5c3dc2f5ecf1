// A run's checkpoints in an object store: ADDRESS/step-N/FILE, with the files of the folder step-N as written by
// checkpoint/native.h. The manifest is uploaded last: a step without one does not count as a checkpoint. After it
// ADDRESS/latest is written, with the line "step-N".
//
// Only one process may write to an address at a time: the one that holds the run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "storage/store.h"

namespace ingot::checkpoint {

// The open files of the checkpoint folder/step-`step`: they remain readable when the folder is removed.
struct OpenFiles {
  // Opens exactly the files that the manifest names. Errors: not_found for one that is missing; corrupt for one of
  // another size, and for a damaged manifest.
  OpenFiles(const std::filesystem::path& folder, int64_t step);
  int64_t step = 0;
  std::vector<MappedFile> files;  // the manifest last
  uint64_t bytes = 0;
};

class RemoteCheckpoints {
 public:
  // `address`: as for open_store. Every operation opens the store and reads credentials anew.
  explicit RemoteCheckpoints(std::string address, StoreOptions options = {});

  std::string uri(int64_t step) const;
  const std::string& address() const { return address_; }

  // Checks that objects can be written and removed at the address. Errors: as Store::put.
  void require_writable() const;
  // For the start of a run: removes the parts of unfinished multipart uploads. Returns the number of uploads.
  int64_t abort_unfinished_uploads() const;
  // Removes objects of steps that have no manifest, and corrects `latest`. Returns the number of objects. Does not
  // touch the newest step if `latest` names it and its manifest was lost.
  int64_t remove_incomplete() const;
  // Steps with a manifest, ascending.
  std::vector<int64_t> list() const;
  // Whether any checkpoint exists, including a newest one whose manifest was lost.
  bool any() const;

  // Uploads a checkpoint, then removes all but the newest `keep`. `keep_going` is called periodically, from any thread;
  // when it returns false the upload ends (unavailable). Returns the message of an error that occurred after the
  // checkpoint was complete, when `latest` was written or older checkpoints were removed; empty without one. Errors: as
  // Store::put; unavailable when another process has removed an uploaded file, or replaced it by one of another size.
  std::string upload(const OpenFiles& files, int64_t keep, const std::function<bool()>& keep_going) const;

  struct Newest {
    std::optional<int64_t> stored;      // newest step of list()
    std::optional<int64_t> downloaded;  // the same, when it was downloaded because the folder did not have it
  };
  // Downloads the newest checkpoint to folder/step-N unless the folder has one at least as new. First removes leftovers
  // of a killed run from the folder. `accept(shown, metadata)` may reject the newest checkpoint, by throwing, before
  // its files are fetched; it is not called for one that is not needed and whose manifest is damaged. A file or
  // manifest that arrives damaged is fetched once more.
  // Errors: corrupt, naming the file and what is wrong with it, also when `latest` names a newer step that has files
  // but no manifest (never falls back to an earlier one: the hint names it); resource for a full disk; as
  // Store::get_file. `keep_going`: as in upload.
  Newest download_newest(const std::filesystem::path& folder,
                         const std::function<void(const std::string&, const std::string&)>& accept,
                         const std::function<bool()>& keep_going) const;

 private:
  struct Listing;
  Listing list_objects(const Store& store) const;
  std::unique_ptr<Store> open(const std::function<bool()>& keep_going) const;

  std::string address_;
  StoreOptions options_;
};

}  // namespace ingot::checkpoint
