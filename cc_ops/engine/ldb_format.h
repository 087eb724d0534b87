// The format of LevelDB's table files (.ldb), as far as reading takes it:
//
//   | data block | ... | filter block | metaindex block | index block | footer 48 |
//
//   block:   | contents | type 1 | masked CRC-32C of both 4 |
//   footer:  | handle of the metaindex | handle of the index | zeros up to 40 | magic 8 |
//   handle:  | offset, varint | size without type and checksum, varint |
//
// A block's contents are entries and, but for the filter block, an array of restart points:
//
//   entry:   | shared, varint | unshared, varint | value bytes, varint | key's unshared bytes |
//   value | restarts:| offset of an entry that shares nothing 4 | ... | number of them 4 |
//
// Source: LevelDB's doc/table_format.md and table/*.cc, version 1.23.

#ifndef TF_HPS_CC_OPS_ENGINE_LDB_FORMAT_H_
#define TF_HPS_CC_OPS_ENGINE_LDB_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace tf_hps {

inline constexpr size_t kLdbFooterBytes = 48;
inline constexpr size_t kLdbTrailerBytes = 5;  // of a block: type and checksum

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "LevelDB's files are little endian");

template <typename Int>
Int LoadLittleEndian(const char* p) {
  Int value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// Takes a varint off the front of *data. Not one with more bytes than it needs: LevelDB writes
// none, so a bit has been flipped, even if the value is the same.
bool TakeVarint(absl::string_view* data, uint64_t* value);

// Takes a varint and that many bytes.
bool TakeLengthPrefixed(absl::string_view* data, absl::string_view* value);

struct LdbHandle {
  uint64_t offset;
  uint64_t size;
};

bool TakeHandle(absl::string_view* data, LdbHandle* handle);

// False when these are not the last kLdbFooterBytes of a table file.
bool ParseFooter(absl::string_view footer, LdbHandle* metaindex, LdbHandle* index);

// Whether a block, with its trailer, has the checksum that it says.
bool ChecksumFits(absl::string_view block_with_trailer);

// The checksum of a block's contents and type, or of a log record's type and data, as LevelDB
// stores it.
uint32_t MaskedCrc32c(absl::string_view data);

// Goes through a block's entries. Ends early, with ok() false, where they make no sense.
class LdbEntries {
 public:
  explicit LdbEntries(absl::string_view contents);

  // Moves to the next entry, at first to the first one.
  bool Next();
  // Moves to before the last restart point whose key comes before `key`, if it is bytewise smaller
  // in its first key.size() bytes; else to the beginning.
  void SeekRestartBefore(absl::string_view key);

  absl::string_view key() const { return key_; }
  absl::string_view value() const { return value_; }
  bool ok() const { return ok_; }

 private:
  bool TakeEntry(absl::string_view* rest, absl::string_view* unshared, uint64_t* shared,
                 absl::string_view* value) const;
  bool Fail();

  absl::string_view entries_;
  const char* restarts_ = nullptr;
  uint32_t restart_count_ = 0;
  absl::string_view rest_;
  std::string key_;
  absl::string_view value_;
  bool ok_ = true;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_LDB_FORMAT_H_
