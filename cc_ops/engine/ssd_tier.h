// The ssd tier: every row of every table of a store, in n LevelDB instances by key hash.
//
// Entry: table id (4 bytes, big endian) . key (8 bytes, big endian, sign bit flipped)  ->  row (see
// row.h)
//
// so that within an instance a table's rows lie together in ascending order of their keys.
// docs/format.md describes it.

#ifndef TF_HPS_CC_OPS_ENGINE_SSD_TIER_H_
#define TF_HPS_CC_OPS_ENGINE_SSD_TIER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cc_ops/engine/ssd_instance.h"
#include "cc_ops/engine/ssd_key.h"

namespace tf_hps {

struct SsdOptions {
  // LevelDB instances: a power of two. Fixed when a store is made, as a key's instance follows from
  // it.
  int instances = 2;
  // Bytes of each instance's write buffer. Up to two of them are in memory at a time.
  int64_t write_buffer_bytes = 4 << 20;
  // Open files of all instances together.
  int max_open_files = 512;
};

// Thread-safe, except that Open and destruction are one thread's. Errors name the instance's
// directory.
class SsdTier {
 public:
  // Of rows that are best written together: more would only take more memory.
  static constexpr int64_t kBatchBytes = 512 << 10;

  // A file of an instance as a snapshot has to hold it.
  struct File {
    int instance;
    std::string name;  // within InstanceDirectory(instance)
    int64_t bytes;
    bool immutable;         // can be hard-linked; else its first `bytes` bytes must be copied
    uint64_t checksum = 0;  // of those bytes, unless it is immutable: LevelDB checks these itself
  };

  // Links or copies a file of a tier into a snapshot. Not synced.
  static absl::Status SaveFile(const File& file, const std::string& from, const std::string& to);

  // Links or copies a snapshot's file to where a tier is to be opened. DataLoss, naming `from`,
  // when it is not as it was saved.
  static absl::Status RestoreFile(const File& file, const std::string& from, const std::string& to);

  // Rows to be written to one instance together.
  class Batch {
   public:
    void Put(uint32_t table_id, int64_t key, absl::string_view row);
    void Remove(uint32_t table_id, int64_t key);
    void Clear() { writes_.Clear(); }
    bool empty() const { return writes_.empty(); }
    int64_t entries() const { return writes_.entries(); }
    int64_t bytes() const { return writes_.bytes(); }

   private:
    friend class SsdTier;
    SsdWrites writes_;
  };

  // Writes many rows, each to its key's instance, in batches.
  class Writer {
   public:
    explicit Writer(SsdTier* tier) : tier_(tier), batches_(tier->instances_.size()) {}
    absl::Status Put(uint32_t table_id, int64_t key, absl::string_view row);
    absl::Status Finish();  // what is still to be written

   private:
    SsdTier* const tier_;
    std::vector<Batch> batches_;
  };

  // Goes through one table's rows in ascending order of their keys, over all instances, as they
  // were when it was made.
  class Scan {
   public:
    bool Valid() const { return current_ >= 0; }
    int64_t key() const { return key_; }
    absl::string_view row() const;  // valid until Next()
    void Next();
    absl::Status status() const;  // why it ended early, if it did

   private:
    friend class SsdTier;
    explicit Scan(uint32_t table_id) : table_id_(table_id) {}
    void FindSmallest();

    const uint32_t table_id_;
    std::vector<std::unique_ptr<SsdInstance::Cursor>> cursors_;
    int current_ = -1;
    int64_t key_ = 0;
  };

  // Opens the instances below `directory`, making those that are not there.
  static absl::StatusOr<std::unique_ptr<SsdTier>> Open(const std::string& directory,
                                                       const SsdOptions& options);
  SsdTier(const SsdTier&) = delete;
  SsdTier& operator=(const SsdTier&) = delete;

  int instances() const { return static_cast<int>(instances_.size()); }
  const std::string& directory() const { return directory_; }
  static std::string FilePath(const std::string& directory, const File& file);
  static std::string InstanceDirectory(const std::string& directory, int instance);

  // Looks up keys, none of them twice and best in ascending order, and calls found(i, row) for
  // those that are there.
  absl::Status Get(int instance, uint32_t table_id, absl::Span<const int64_t> keys,
                   absl::FunctionRef<absl::Status(int64_t i, absl::string_view row)> found);

  absl::Status Write(int instance, Batch* batch);

  absl::StatusOr<std::unique_ptr<Scan>> NewScan(uint32_t table_id);

  // Removes all rows of a table.
  absl::Status DropTable(uint32_t table_id);

  // Removes all rows but those of these tables.
  absl::Status DropOtherTables(const std::set<uint32_t>& keep);

  // Rewrites the files without what was overwritten or removed.
  absl::Status Compact();

  // Writes what is in memory to files, then calls visit(file) for each file that makes up this
  // state, while none of them can go away. The caller keeps writers out.
  absl::Status VisitFiles(absl::FunctionRef<absl::Status(const File& file)> visit);

  // Changes when a file's name may have been used again.
  int64_t reopenings() const;

  int64_t buffered_bytes() const;  // waiting to be put into files
  int64_t bytes_read() const;
  int64_t bytes_written() const;

 private:
  SsdTier() = default;
  absl::Status VisitInstanceFiles(int instance,
                                  absl::FunctionRef<absl::Status(const File& file)> visit);

  std::string directory_;
  std::vector<std::unique_ptr<SsdInstance>> instances_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_SSD_TIER_H_
