#include "cc_ops/engine/level_files.h"

#include <algorithm>
#include <utility>

#include "cc_ops/engine/ldb_format.h"

namespace tf_hps {
namespace {

constexpr uint64_t kLogBlockBytes = 32768;
constexpr size_t kRecordHeaderBytes = 7;  // checksum 4, length 2, type 1
enum RecordType : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

enum EditTag : uint64_t {
  kComparator = 1,
  kLogNumber = 2,
  kNextFileNumber = 3,
  kLastSequence = 4,
  kCompactPointer = 5,
  kDeletedFile = 6,
  kNewFile = 7,
  kPreviousLogNumber = 9,
};

// The user's part of a length-prefixed internal key, which ends in sequence number and type.
bool TakeInternalKey(absl::string_view* data, SsdKey* key) {
  absl::string_view internal;
  if (!TakeLengthPrefixed(data, &internal) || internal.size() < 8) return false;
  return ParseSsdKey(internal.substr(0, internal.size() - 8), &key->table_id, &key->key);
}

}  // namespace

bool ManifestReader::Append(absl::string_view data) {
  unread_.append(data.data(), data.size());
  while (ok_ && TakeRecord()) continue;
  return ok_;
}

bool ManifestReader::TakeRecord() {
  const uint64_t left = kLogBlockBytes - offset_ % kLogBlockBytes;
  size_t take = left;  // zeros that fill a block
  if (left >= kRecordHeaderBytes) {
    if (unread_.size() < kRecordHeaderBytes) return false;
    const size_t bytes = LoadLittleEndian<uint16_t>(unread_.data() + 4);
    take = kRecordHeaderBytes + bytes;
    if (unread_.size() < take) return false;
    const auto type = static_cast<uint8_t>(unread_[6]);
    if (type == kFull || type == kFirst) edit_.clear();
    edit_.append(unread_, kRecordHeaderBytes, bytes);
    if (type == kFull || type == kLast) ok_ = ApplyEdit(edit_);
    if (type < kFull || type > kLast) ok_ = false;
  } else if (unread_.size() < left) {
    return false;
  }
  unread_.erase(0, take);
  offset_ += take;
  return true;
}

bool ManifestReader::ApplyEdit(absl::string_view edit) {
  std::vector<std::pair<uint64_t, std::shared_ptr<const LevelFile>>> added;
  while (!edit.empty()) {
    uint64_t tag, level, number, bytes;
    absl::string_view text;
    SsdKey smallest, largest;
    if (!TakeVarint(&edit, &tag)) return false;
    switch (tag) {
      case kComparator:
        if (!TakeLengthPrefixed(&edit, &text)) return false;
        break;
      case kLogNumber:
      case kNextFileNumber:
      case kLastSequence:
      case kPreviousLogNumber:
        if (!TakeVarint(&edit, &number)) return false;
        break;
      case kCompactPointer:
        if (!TakeVarint(&edit, &level) || !TakeLengthPrefixed(&edit, &text)) return false;
        break;
      case kDeletedFile:
        if (!TakeVarint(&edit, &level) || !TakeVarint(&edit, &number) || level >= kLdbLevels) {
          return false;
        }
        Remove(level, number);
        break;
      case kNewFile:
        if (!TakeVarint(&edit, &level) || !TakeVarint(&edit, &number) ||
            !TakeVarint(&edit, &bytes) || !TakeInternalKey(&edit, &smallest) ||
            !TakeInternalKey(&edit, &largest) || level >= kLdbLevels) {
          return false;
        }
        added.emplace_back(level, std::make_shared<const LevelFile>(
                                      number, static_cast<int64_t>(bytes), smallest, largest));
        break;
      default:
        return false;
    }
  }
  for (auto& [level, file] : added) Add(level, std::move(file));
  return true;
}

void ManifestReader::Remove(uint64_t level, uint64_t number) {
  auto& files = files_.levels[level];
  files.erase(std::remove_if(files.begin(), files.end(),
                             [number](const auto& file) { return file->number == number; }),
              files.end());
}

void ManifestReader::Add(uint64_t level, std::shared_ptr<const LevelFile> file) {
  auto& files = files_.levels[level];
  const auto place = std::find_if(files.begin(), files.end(), [&](const auto& other) {
    return level == 0 ? other->number < file->number : file->smallest < other->smallest;
  });
  files.insert(place, std::move(file));
}

}  // namespace tf_hps
