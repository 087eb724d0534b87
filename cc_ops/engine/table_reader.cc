#include "cc_ops/engine/table_reader.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/file_fault.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/ldb_bloom.h"
#include "cc_ops/engine/ldb_format.h"
#include "cc_ops/engine/prefetch.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/uninitialized_vector.h"
#include "leveldb/slice.h"

namespace tf_hps {
namespace {

constexpr size_t kSequenceBytes = 8;  // at the end of an internal key: type 1, sequence number 7
constexpr uint8_t kRemoved = 0;
constexpr uint8_t kValue = 1;
constexpr char kUncompressed = 0;

// The greatest key that is not after an index entry's key, which may be shorter than ours.
bool LastKeyOf(absl::string_view separator, SsdKey* key) {
  if (separator.size() > kSsdKeyBytes) return false;
  if (separator.size() == kSsdKeyBytes) return ParseSsdKey(separator, &key->table_id, &key->key);
  // All keys that begin with it come after it: the one before the first of them.
  char padded[kSsdKeyBytes] = {};
  std::memcpy(padded, separator.data(), separator.size());
  for (size_t i = kSsdKeyBytes; i-- > 0;) {
    if (padded[i]-- != 0) return ParseSsdKey({padded, kSsdKeyBytes}, &key->table_id, &key->key);
  }
  return false;  // it is empty, or zeros
}

}  // namespace

absl::Status TableReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, " is damaged: ", what));
}

absl::StatusOr<std::shared_ptr<const TableReader>> TableReader::Open(
    const std::string& path, int64_t bytes, const TableReadContext& context) {
  if (const int fault = InjectedFault(FileOp::kOpen, path)) {
    return ErrnoStatus(fault, "open", path);
  }
  int fd;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  const auto reader = std::shared_ptr<TableReader>(new TableReader(path, fd, context));
  TF_HPS_RETURN_IF_ERROR(reader->Load(bytes));
  return std::shared_ptr<const TableReader>(reader);
}

TableReader::~TableReader() { ::close(fd_); }

int64_t TableReader::memory_bytes() const {
  return static_cast<int64_t>(blocks_.capacity() * sizeof(Block) + filters_.capacity());
}

absl::Status TableReader::Load(int64_t bytes) {
  if (bytes < static_cast<int64_t>(kLdbFooterBytes)) return Damaged("it is shorter than a footer");
  char footer[kLdbFooterBytes];
  TF_HPS_RETURN_IF_ERROR(
      Pread(static_cast<uint64_t>(bytes) - kLdbFooterBytes, kLdbFooterBytes, footer));
  LdbHandle metaindex, index;
  if (!ParseFooter({footer, kLdbFooterBytes}, &metaindex, &index)) {
    return Damaged("its footer is not that of a LevelDB table");
  }
  TF_HPS_ASSIGN_OR_RETURN(const std::string index_block, ReadBlock(index, bytes));
  TF_HPS_RETURN_IF_ERROR(LoadIndex(index_block, bytes));
  TF_HPS_ASSIGN_OR_RETURN(const std::string metaindex_block, ReadBlock(metaindex, bytes));
  return LoadFilter(metaindex_block, bytes);
}

absl::Status TableReader::Pread(uint64_t offset, size_t bytes, char* out) const {
  if (const int fault = InjectedFault(FileOp::kRead, path_)) {
    return ErrnoStatus(fault, "read", path_);
  }
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(fd_, out + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", path_);
    if (got == 0) return Damaged("it is shorter than LevelDB wrote it");
    done += static_cast<size_t>(got);
  }
  context_.bytes_read->fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<std::string> TableReader::ReadBlock(const LdbHandle& handle,
                                                   int64_t file_bytes) const {
  const uint64_t end = static_cast<uint64_t>(file_bytes) - kLdbFooterBytes;
  if (handle.size > end || handle.offset > end - handle.size ||
      end - handle.size - handle.offset < kLdbTrailerBytes) {
    return Damaged(absl::StrCat("a block at byte ", handle.offset, " lies outside"));
  }
  std::string block(handle.size + kLdbTrailerBytes, '\0');
  TF_HPS_RETURN_IF_ERROR(Pread(handle.offset, block.size(), block.data()));
  TF_HPS_RETURN_IF_ERROR(CheckBlock(block, handle.offset));
  block.resize(handle.size);
  return block;
}

absl::Status TableReader::CheckBlock(absl::string_view block, uint64_t offset) const {
  if (!ChecksumFits(block)) {
    return Damaged(absl::StrCat("the checksum of its block at byte ", offset, " does not fit"));
  }
  if (block[block.size() - kLdbTrailerBytes] != kUncompressed) {
    return Damaged(absl::StrCat("its block at byte ", offset, " is compressed"));
  }
  return absl::OkStatus();
}

absl::Status TableReader::LoadIndex(absl::string_view index, int64_t file_bytes) {
  const uint64_t limit = std::min<uint64_t>(static_cast<uint64_t>(file_bytes), UINT32_MAX);
  uint64_t end = 0;
  LdbEntries entries(index);
  while (entries.Next()) {
    const absl::string_view key = entries.key();
    absl::string_view value = entries.value();
    LdbHandle handle;
    SsdKey last;
    if (key.size() < kSequenceBytes || !TakeHandle(&value, &handle) || handle.offset != end ||
        handle.size > limit || handle.offset + handle.size + kLdbTrailerBytes > limit ||
        !LastKeyOf(key.substr(0, key.size() - kSequenceBytes), &last)) {
      return Damaged("its index cannot be read");
    }
    end = handle.offset + handle.size + kLdbTrailerBytes;
    blocks_.push_back({last.key, last.table_id, static_cast<uint32_t>(handle.offset)});
  }
  if (!entries.ok()) return Damaged("its index cannot be read");
  blocks_.push_back({INT64_MAX, UINT32_MAX, static_cast<uint32_t>(end)});
  blocks_.shrink_to_fit();
  return absl::OkStatus();
}

absl::Status TableReader::LoadFilter(absl::string_view metaindex, int64_t file_bytes) {
  const std::string name = absl::StrCat("filter.", context_.filter->Name());
  LdbEntries entries(metaindex);
  while (entries.Next()) {
    if (entries.key() != name) continue;
    absl::string_view value = entries.value();
    LdbHandle handle;
    if (!TakeHandle(&value, &handle)) return Damaged("its metaindex cannot be read");
    TF_HPS_ASSIGN_OR_RETURN(filters_, ReadBlock(handle, file_bytes));
    // | filter | ... | offset of each 4 | offset of the offsets 4 | base 1 |
    if (filters_.size() < 5) return Damaged("its filters cannot be read");
    filter_offsets_ = LoadLittleEndian<uint32_t>(filters_.data() + filters_.size() - 5);
    filter_base_ = filters_.back();
    if (filter_offsets_ > filters_.size() - 5 || filter_base_ < 0 || filter_base_ > 31) {
      return Damaged("its filters cannot be read");
    }
    filter_count_ = static_cast<uint32_t>((filters_.size() - 5 - filter_offsets_) / 4);
    filters_.shrink_to_fit();
  }
  return entries.ok() ? absl::OkStatus() : Damaged("its metaindex cannot be read");
}

const char* TableReader::FilterOffset(size_t block) const {
  const uint32_t i = blocks_[block].offset >> filter_base_;
  return i < filter_count_ ? filters_.data() + filter_offsets_ + 4 * size_t{i} : nullptr;
}

absl::string_view TableReader::FilterOf(size_t block) const {
  const char* const offset = FilterOffset(block);
  if (offset == nullptr) return {};
  const uint32_t begin = LoadLittleEndian<uint32_t>(offset);
  const uint32_t end = LoadLittleEndian<uint32_t>(offset + 4);
  if (begin > end || end > filter_offsets_) return {};
  return {filters_.data() + begin, end - begin};
}

bool TableReader::MayHave(size_t block, uint32_t bloom_hash) const {
  const absl::string_view filter = FilterOf(block);
  return filter.data() == nullptr || BloomMayMatch(bloom_hash, filter);
}

size_t TableReader::LocateKeys(absl::Span<const SsdKey> keys, absl::Span<const uint32_t> hashes,
                               absl::Span<const int32_t> wanted, Located* located) const {
  const size_t count = std::min(wanted.size(), kLocated);
  std::fill_n(located->blocks, count, 0);
  // All searches at the same pace, by halves: each has its block in [begin, begin + left].
  for (size_t left = blocks(); left > 0;) {
    const size_t half = (left + 1) / 2;
    left -= half;
    for (size_t i = 0; i < count; ++i) {
      size_t& begin = located->blocks[i];
      if (blocks_[begin + half - 1].last() < keys[wanted[i]]) begin += half;
      if (left > 0) PrefetchLine(&blocks_[begin + (left + 1) / 2 - 1]);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (located->blocks[i] < blocks()) PrefetchLine(FilterOffset(located->blocks[i]));
  }
  for (size_t i = 0; i < count; ++i) {
    if (located->blocks[i] < blocks()) PrefetchLine(FilterOf(located->blocks[i]).data());
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t at = located->blocks[i];
    located->may_have[i] = at < blocks() && MayHave(at, hashes[wanted[i]]);
  }
  return count;
}

bool TableReader::ReadCached(size_t block, char* out) const {
  const uint32_t offset = blocks_[block].offset;
  const size_t bytes = BytesOf(block);
#ifdef RWF_NOWAIT
  if (InjectedFault(FileOp::kRead, path_) != 0) return false;
  const iovec piece = {out, bytes};
  if (::preadv2(fd_, &piece, 1, offset, RWF_NOWAIT) == static_cast<ssize_t>(bytes)) {
    context_.bytes_read->fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    return true;
  }
#endif
  ::posix_fadvise(fd_, offset, static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  return false;
}

absl::Status TableReader::Find(absl::Span<const SsdKey> keys, absl::Span<const uint32_t> hashes,
                               absl::Span<const int32_t> wanted, EntryFound found,
                               std::vector<int32_t>* missing,
                               std::vector<Deferred>* deferred) const {
  UninitializedVector<char> data;
  std::vector<int32_t> in_block;
  Located located;
  for (size_t done = 0, count = 0; done < wanted.size(); done += count) {
    const absl::Span<const int32_t> some = wanted.subspan(done);
    count = LocateKeys(keys, hashes, some, &located);
    for (size_t i = 0; i < count;) {
      const size_t block = located.blocks[i];
      in_block.clear();
      for (; i < count && located.blocks[i] == block; ++i) {
        (located.may_have[i] ? &in_block : missing)->push_back(some[i]);
      }
      if (in_block.empty()) continue;
      data.resize(std::max(data.size(), BytesOf(block)));
      if (!ReadCached(block, data.data())) {
        deferred->push_back({shared_from_this(), block, in_block});
        continue;
      }
      TF_HPS_RETURN_IF_ERROR(FindInBlock(block, data.data(), keys, in_block, found, missing));
    }
  }
  return absl::OkStatus();
}

absl::Status TableReader::Finish(absl::Span<const Deferred> deferred, absl::Span<const SsdKey> keys,
                                 EntryFound found, std::vector<int32_t>* missing) {
  UninitializedVector<char> data;
  for (const Deferred& read : deferred) {
    const TableReader& reader = *read.reader;
    const size_t bytes = reader.BytesOf(read.block);
    data.resize(std::max(data.size(), bytes));
    TF_HPS_RETURN_IF_ERROR(reader.Pread(reader.blocks_[read.block].offset, bytes, data.data()));
    TF_HPS_RETURN_IF_ERROR(
        reader.FindInBlock(read.block, data.data(), keys, read.wanted, found, missing));
  }
  return absl::OkStatus();
}

absl::Status TableReader::FindInBlock(size_t block, const char* data, absl::Span<const SsdKey> keys,
                                      absl::Span<const int32_t> wanted, EntryFound found,
                                      std::vector<int32_t>* missing) const {
  const uint64_t offset = blocks_[block].offset;
  const absl::string_view whole(data, BytesOf(block));
  TF_HPS_RETURN_IF_ERROR(CheckBlock(whole, offset));
  LdbEntries entries(whole.substr(0, whole.size() - kLdbTrailerBytes));
  char first[kSsdKeyBytes];
  WriteSsdKey(keys[wanted[0]].table_id, keys[wanted[0]].key, first);
  entries.SeekRestartBefore({first, kSsdKeyBytes});
  SsdKey key = {};
  bool more = true, ahead = false;  // whether the entry at hand has not been passed yet
  for (const int32_t i : wanted) {
    while (more && (!ahead || key < keys[i])) {
      more = ahead = entries.Next();
      if (!more) break;
      const absl::string_view internal = entries.key();
      if (internal.size() != kSsdKeyBytes + kSequenceBytes ||
          !ParseSsdKey(internal.substr(0, kSsdKeyBytes), &key.table_id, &key.key)) {
        return Damaged(absl::StrCat("its block at byte ", offset, " has a key of ", internal.size(),
                                    " bytes"));
      }
    }
    if (!more || !(key == keys[i])) {
      missing->push_back(i);
      continue;
    }
    // Of several entries of a key the first is the newest.
    const auto type = static_cast<uint8_t>(entries.key()[kSsdKeyBytes]);
    if (type != kValue && type != kRemoved) {
      return Damaged(absl::StrCat("its block at byte ", offset, " has an entry of type ",
                                  static_cast<int>(type)));
    }
    TF_HPS_RETURN_IF_ERROR(found(i, type == kRemoved, entries.value()));
  }
  if (entries.ok()) return absl::OkStatus();
  return Damaged(absl::StrCat("its block at byte ", offset, " cannot be read"));
}

absl::StatusOr<std::shared_ptr<const TableReader>> TableSlot::Get(const std::string& path,
                                                                  int64_t bytes,
                                                                  const TableReadContext& context) {
  MutexLock lock(&mu_);
  if (reader_ == nullptr) {
    TF_HPS_ASSIGN_OR_RETURN(reader_, TableReader::Open(path, bytes, context));
    open_.store(true, std::memory_order_relaxed);
  }
  return reader_;
}

bool TableSlot::Close() {
  MutexLock lock(&mu_);
  open_.store(false, std::memory_order_relaxed);
  return std::exchange(reader_, nullptr) != nullptr;
}

}  // namespace tf_hps
