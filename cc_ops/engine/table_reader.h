// Reads rows from one of LevelDB's table files.
//
// It does what leveldb::Table does, for many keys at once: an index that is smaller and is searched
// from the last key on, a block read once for all keys in it, blocks that the page cache does not
// have requested before the first of them is waited for, checksums by the processor's instruction.
// And it tells LevelDB nothing that would make it compact files (see ssd_instance.h).

#ifndef TF_HPS_CC_OPS_ENGINE_TABLE_READER_H_
#define TF_HPS_CC_OPS_ENGINE_TABLE_READER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cc_ops/engine/ldb_format.h"
#include "cc_ops/engine/mutex.h"
#include "cc_ops/engine/ssd_key.h"
#include "leveldb/filter_policy.h"

namespace tf_hps {

// What is wanted of table files, and how it is counted.
struct TableReadContext {
  const leveldb::FilterPolicy* filter;
  std::atomic<int64_t>* bytes_read;
};

// Called with the entry of keys[i]: its value, or that it was removed.
using EntryFound =
    absl::FunctionRef<absl::Status(int64_t i, bool removed, absl::string_view value)>;

// Thread-safe. Errors name the file.
class TableReader : public std::enable_shared_from_this<TableReader> {
 public:
  // A block that the disk has been asked for.
  struct Deferred {
    std::shared_ptr<const TableReader> reader;
    size_t block;
    std::vector<int32_t> wanted;
  };

  // NotFound: the file is not there (any more). DataLoss: it is damaged.
  static absl::StatusOr<std::shared_ptr<const TableReader>> Open(const std::string& path,
                                                                 int64_t bytes,
                                                                 const TableReadContext& context);
  ~TableReader();
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  // Looks for keys[i], of which hashes[i] is the BloomHash, for each i of `wanted`, whose keys
  // ascend. Appends those that it does not have to `missing`, in any order, and what has to wait
  // for the disk to `deferred`.
  absl::Status Find(absl::Span<const SsdKey> keys, absl::Span<const uint32_t> hashes,
                    absl::Span<const int32_t> wanted, EntryFound found,
                    std::vector<int32_t>* missing, std::vector<Deferred>* deferred) const;

  // Waits for the disk.
  static absl::Status Finish(absl::Span<const Deferred> deferred, absl::Span<const SsdKey> keys,
                             EntryFound found, std::vector<int32_t>* missing);

  // Of index and filters.
  int64_t memory_bytes() const;

 private:
  struct Block {       // ends where the next one begins
    int64_t last_key;  // no key of the block is greater than last()
    uint32_t last_table_id;
    uint32_t offset;

    SsdKey last() const { return {last_table_id, last_key}; }
  };

  static constexpr size_t kLocated = 32;
  struct Located {
    size_t blocks[kLocated];
    bool may_have[kLocated];
  };

  TableReader(std::string path, int fd, const TableReadContext& context)
      : path_(std::move(path)), fd_(fd), context_(context) {}
  absl::Status Load(int64_t bytes);
  absl::Status LoadIndex(absl::string_view index, int64_t file_bytes);
  absl::Status LoadFilter(absl::string_view metaindex, int64_t file_bytes);
  absl::Status Pread(uint64_t offset, size_t bytes, char* out) const;
  absl::StatusOr<std::string> ReadBlock(const LdbHandle& handle, int64_t file_bytes) const;
  absl::Status CheckBlock(absl::string_view block, uint64_t offset) const;
  // The blocks of the first keys, and whether their filters let them pass. Memory is slow but does
  // many things at once. Returns how many keys that are.
  size_t LocateKeys(absl::Span<const SsdKey> keys, absl::Span<const uint32_t> hashes,
                    absl::Span<const int32_t> wanted, Located* located) const;
  size_t blocks() const { return blocks_.size() - 1; }
  size_t BytesOf(size_t block) const { return blocks_[block + 1].offset - blocks_[block].offset; }
  const char* FilterOffset(size_t block) const;  // null: it has no filter
  absl::string_view FilterOf(size_t block) const;
  bool MayHave(size_t block, uint32_t bloom_hash) const;
  // False when it has to wait for the disk.
  bool ReadCached(size_t block, char* out) const;
  absl::Status FindInBlock(size_t block, const char* data, absl::Span<const SsdKey> keys,
                           absl::Span<const int32_t> wanted, EntryFound found,
                           std::vector<int32_t>* missing) const;
  absl::Status Damaged(absl::string_view what) const;

  const std::string path_;
  const int fd_;
  const TableReadContext context_;
  std::vector<Block> blocks_;  // and one more, where the last one ends
  std::string filters_;  // a filter for each 2^filter_base_ bytes of the file, their offsets behind
  uint32_t filter_count_ = 0;
  uint32_t filter_offsets_ = 0;  // where those begin
  int filter_base_ = 0;
};

// Where a file's reader is kept while it is open. Thread-safe.
class TableSlot {
 public:
  // Opens the file where it is not.
  absl::StatusOr<std::shared_ptr<const TableReader>> Get(const std::string& path, int64_t bytes,
                                                         const TableReadContext& context);
  // Whether it was open.
  bool Close();
  bool is_open() const { return open_.load(std::memory_order_relaxed); }
  // The time of the last Get, on a clock that the caller chooses.
  std::atomic<int64_t> last_use{0};

 private:
  Mutex mu_;
  std::shared_ptr<const TableReader> reader_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> open_{false};
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_TABLE_READER_H_
