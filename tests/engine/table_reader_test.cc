#include "cc_ops/engine/table_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <random>

#include "absl/strings/match.h"
#include "cc_ops/engine/ldb_bloom.h"
#include "cc_ops/engine/level_files.h"
#include "cc_ops/engine/ssd_env.h"
#include "leveldb/db.h"
#include "leveldb/write_batch.h"
#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

// A database that LevelDB writes and that is read without it, against a map.
class TableReaderTest : public testing::Test {
 protected:
  using Rows = std::map<std::pair<uint32_t, int64_t>, std::optional<std::string>>;

  TableReaderTest() : filter_(leveldb::NewBloomFilterPolicy(10)) { Open(); }
  ~TableReaderTest() override { db_.reset(); }

  void Open(size_t block_bytes = 4096) {
    db_.reset();
    leveldb::Options options;
    options.create_if_missing = true;
    options.env = env_.env();
    options.compression = leveldb::kNoCompression;
    options.filter_policy = filter_.get();
    options.block_size = block_bytes;
    options.max_file_size = 1 << 20;
    leveldb::DB* db = nullptr;
    ASSERT_TRUE(leveldb::DB::Open(options, directory_ / "db", &db).ok());
    db_.reset(db);
  }

  // Writes the rows to a file. No value: the row is removed.
  void Write(const Rows& rows) {
    leveldb::WriteBatch batch;
    for (const auto& [key, value] : rows) {
      const std::string entry = EncodeSsdKey(key.first, key.second);
      value ? batch.Put(entry, *value) : batch.Delete(entry);
      rows_[key] = value;
    }
    ASSERT_TRUE(db_->Write(leveldb::WriteOptions(), &batch).ok());
    ASSERT_TRUE(db_->Write(leveldb::WriteOptions(), nullptr).ok());
    ASSERT_TRUE(db_->Write(leveldb::WriteOptions(), nullptr).ok());
  }

  std::string PathOf(const LevelFile& file) {
    char name[32];
    std::snprintf(name, sizeof(name), "db/%06d.ldb", static_cast<int>(file.number));
    return directory_ / name;
  }

  std::vector<std::shared_ptr<const LevelFile>> Files() {
    std::vector<std::shared_ptr<const LevelFile>> files;
    for (const auto& level : env_.files()->levels) {
      files.insert(files.end(), level.begin(), level.end());
    }
    return files;
  }

  // What a file's reader finds of `keys`, which ascend.
  absl::StatusOr<Rows> Read(const LevelFile& file, const std::vector<SsdKey>& keys) {
    std::vector<int32_t> wanted(keys.size()), missing;
    for (size_t i = 0; i < keys.size(); ++i) wanted[i] = static_cast<int32_t>(i);
    Rows rows;
    const auto found = [&](int64_t i, bool removed, absl::string_view value) -> absl::Status {
      const auto [it, inserted] =
          rows.insert({{keys[i].table_id, keys[i].key},
                       removed ? std::nullopt : std::make_optional(std::string(value))});
      EXPECT_TRUE(inserted) << "found twice";
      return absl::OkStatus();
    };
    const auto reader = TableReader::Open(PathOf(file), file.bytes, {filter_.get(), &bytes_read_});
    if (!reader.ok()) return reader.status();
    std::vector<TableReader::Deferred> deferred;
    std::vector<uint32_t> hashes;
    for (const SsdKey& key : keys) hashes.push_back(BloomHash(key));
    absl::Status status = (*reader)->Find(keys, hashes, wanted, found, &missing, &deferred);
    if (!status.ok()) return status;
    deferred_ += deferred.size();
    status = TableReader::Finish(deferred, keys, found, &missing);
    if (!status.ok()) return status;
    EXPECT_EQ(missing.size() + rows.size(), keys.size());
    std::sort(missing.begin(), missing.end());
    EXPECT_TRUE(std::adjacent_find(missing.begin(), missing.end()) == missing.end());
    for (const int32_t i : missing) {
      EXPECT_EQ(rows.count({keys[i].table_id, keys[i].key}), 0u);
    }
    return rows;
  }

  TestDirectory directory_;
  const std::unique_ptr<const leveldb::FilterPolicy> filter_;
  SsdEnv env_;
  std::unique_ptr<leveldb::DB> db_;
  Rows rows_;
  std::atomic<int64_t> bytes_read_{0};
  size_t deferred_ = 0;
};

std::string Value(int64_t i, size_t bytes) {
  std::string value(bytes, static_cast<char>('a' + i % 26));
  return value + std::to_string(i);
}

TEST_F(TableReaderTest, FindsWhatAFileHas) {
  std::mt19937_64 rng(1);
  Rows rows;
  for (int i = 0; i < 5000; ++i) {
    rows[{static_cast<uint32_t>(rng() % 3), static_cast<int64_t>(rng())}] = Value(i, 60);
  }
  for (const int64_t key : {INT64_MIN, int64_t{-256}, int64_t{-1}, int64_t{0}, INT64_MAX}) {
    rows[{1, key}] = Value(key & 0xff, 10);
    rows[{UINT32_MAX, key}] = std::nullopt;
  }
  Write(rows);
  const auto files = Files();
  ASSERT_EQ(files.size(), 1u);
  std::vector<SsdKey> keys;
  for (const auto& [key, value] : rows) keys.push_back({key.first, key.second});
  EXPECT_EQ(*Read(*files[0], keys), rows);
  EXPECT_EQ(files[0]->smallest, keys.front());
  EXPECT_EQ(files[0]->largest, keys.back());
  // Neighbors of keys that are there, and nothing at all.
  std::vector<SsdKey> near;
  for (const SsdKey& key : keys) {
    const SsdKey next = {key.table_id, key.key + (key.key < INT64_MAX)};
    if (rows.count({next.table_id, next.key}) == 0) near.push_back(next);
  }
  EXPECT_TRUE(Read(*files[0], near)->empty());
  EXPECT_TRUE(Read(*files[0], {})->empty());
}

TEST_F(TableReaderTest, RandomBatchesOverManyFiles) {
  std::mt19937_64 rng(2);
  for (const size_t block_bytes : {256, 1024, 4096}) {
    Open(block_bytes);
    for (int round = 0; round < 12; ++round) {
      Rows rows;
      for (int i = 0; i < 2000; ++i) {
        const auto key = static_cast<int64_t>(rng() % 5000) - 2500;
        rows[{1, key}] = rng() % 10 == 0 ? std::nullopt : std::make_optional(Value(i, rng() % 200));
      }
      Write(rows);
    }
    // Level after level, from the newest file on.
    Rows found;
    std::vector<SsdKey> keys;
    for (const auto& [key, value] : rows_) keys.push_back({key.first, key.second});
    ASSERT_TRUE(Eventually([&] { return env_.files()->levels[0].size() < 4; }));
    for (const auto& file : Files()) {
      std::vector<SsdKey> rest;
      for (const SsdKey& key : keys) {
        if (found.count({key.table_id, key.key}) == 0) rest.push_back(key);
      }
      found.merge(*Read(*file, rest));
    }
    Rows live = rows_;
    for (auto it = found.begin(); it != found.end();) it = it->second ? ++it : found.erase(it);
    for (auto it = live.begin(); it != live.end();) it = it->second ? ++it : live.erase(it);
    EXPECT_EQ(found, live) << block_bytes;
  }
}

TEST_F(TableReaderTest, AValueLargerThanABlock) {
  Write({{{1, 5}, Value(1, 100000)}, {{1, 6}, ""}, {{1, 7}, Value(2, 5000)}});
  const auto rows = Read(*Files()[0], {{1, 4}, {1, 5}, {1, 6}, {1, 7}, {1, 8}});
  EXPECT_EQ(*rows, rows_);
}

TEST_F(TableReaderTest, OfSeveralEntriesOfAKeyTheNewestCounts) {
  const leveldb::Snapshot* const snapshot = db_->GetSnapshot();
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(db_->Put({}, EncodeSsdKey(1, 7), Value(i, 40)).ok());
    db_->ReleaseSnapshot(db_->GetSnapshot());
  }
  Write({{{1, 6}, "before"}, {{1, 8}, "after"}});
  rows_[{1, 7}] = Value(299, 40);
  EXPECT_EQ(*Read(*Files()[0], {{1, 6}, {1, 7}, {1, 8}}), rows_);
  db_->ReleaseSnapshot(snapshot);
}

TEST_F(TableReaderTest, WhatTheMemoryDoesNotHaveIsReadFromDisk) {
  Rows rows;
  for (int64_t i = 0; i < 20000; ++i) rows[{1, i}] = Value(i, 100);
  Write(rows);
  const auto file = Files()[0];
  const int fd = ::open(PathOf(*file).c_str(), O_RDONLY);
  ASSERT_EQ(::fsync(fd), 0);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // does nothing where files are in memory
  ::close(fd);
  std::vector<SsdKey> keys;
  for (int64_t i = 0; i < 20000; i += 500) keys.push_back({1, i});
  EXPECT_EQ(Read(*file, keys)->size(), keys.size());
  RecordProperty("deferred", static_cast<int>(deferred_));
}

TEST_F(TableReaderTest, DamageIsFoundAndNamesTheFile) {
  Rows rows;
  for (int64_t i = 0; i < 500; ++i) rows[{1, 3 * i}] = Value(i, 20);
  Write(rows);
  const auto file = Files()[0];
  const std::string path = PathOf(*file), sound = *ReadFile(path);
  std::vector<SsdKey> keys;
  for (int64_t i = 0; i < 1500; ++i) keys.push_back({1, i});
  int found = 0;
  for (size_t byte = 0; byte < sound.size(); byte += byte + 600 < sound.size() ? 7 : 1) {
    std::string damaged = sound;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 8));
    std::ofstream(path, std::ios::binary) << damaged;
    const absl::StatusOr<Rows> read = Read(*file, keys);
    if (read.ok()) {
      EXPECT_EQ(*read, rows) << "byte " << byte;  // bits that nobody needs
      continue;
    }
    ++found;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << read.status();
    EXPECT_TRUE(absl::StrContains(read.status().message(), path)) << read.status();
  }
  EXPECT_GT(found, 2000);
  for (const size_t bytes : {sound.size() / 2, sound.size() - 1, size_t{10}, size_t{0}}) {
    std::ofstream(path, std::ios::binary) << sound.substr(0, bytes);
    const absl::StatusOr<Rows> read = Read(*file, keys);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(Read(*file, keys).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TableReaderTest, FollowsFilesOverLevelsAndReopening) {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 10; ++round) {
    Rows rows;
    for (int i = 0; i < 3000; ++i) rows[{2, static_cast<int64_t>(rng() % 20000)}] = Value(i, 300);
    Write(rows);
    if (round % 4 == 3) Open();
    db_->CompactRange(nullptr, nullptr);
    // The very files that are in the directory.
    std::vector<std::string> paths, names;
    for (const auto& file : Files()) paths.push_back(PathOf(*file));
    ASSERT_TRUE(Eventually([&] {
      names.clear();
      const auto listed = ListDirectory(directory_ / "db");
      for (const std::string& name : *listed) {
        if (absl::EndsWith(name, ".ldb")) names.push_back(directory_ / ("db/" + name));
      }
      return names.size() == paths.size();
    }));
    std::sort(paths.begin(), paths.end());
    EXPECT_EQ(paths, names);
    for (const auto& file : Files()) EXPECT_EQ(*FileSize(PathOf(*file)), file->bytes);
  }
}

TEST(ManifestReaderTest, RubbishAndForeignKeysAreRefused) {
  std::mt19937_64 rng(4);
  for (int round = 0; round < 200; ++round) {
    std::string rubbish(rng() % 200, '\0');
    for (char& byte : rubbish) byte = static_cast<char>(rng());
    ManifestReader reader;
    reader.Append(rubbish);  // must neither crash nor hang
  }
  const TestDirectory directory;
  SsdEnv env;
  leveldb::Options options;
  options.create_if_missing = true;
  options.env = env.env();
  leveldb::DB* db = nullptr;
  ASSERT_TRUE(leveldb::DB::Open(options, directory / "db", &db).ok());
  const std::unique_ptr<leveldb::DB> owned(db);
  EXPECT_NE(env.files(), nullptr);
  ASSERT_TRUE(db->Put({}, "short", "value").ok());
  db->CompactRange(nullptr, nullptr);
  EXPECT_EQ(env.files(), nullptr);
}

}  // namespace
}  // namespace tf_hps
