// The leveldb::Env under each LevelDB instance of a store.
//
// It differs from LevelDB's own in what the store needs: a background thread per instance
// (LevelDB's default has one for the whole process), no write-ahead log and no syncing (a store
// opens at its last commit, which syncs the files it links; more would protect nothing), reads with
// pread instead of mmap (a failing disk is an error, not a signal, and pages are not counted as
// ours), deletions that can be held while files are being linked into a commit, and byte counts.
//
// This header names no subclass of leveldb::Env: the library is commonly built without run-time
// type information, so ssd_env.cc is compiled with -fno-rtti and keeps the subclass to itself.

#ifndef TF_HPS_CC_OPS_ENGINE_SSD_ENV_H_
#define TF_HPS_CC_OPS_ENGINE_SSD_ENV_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "leveldb/env.h"

namespace tf_hps {

struct LevelFiles;

// Thread-safe. Must outlive the leveldb::DB that uses env().
class SsdEnv {
 public:
  SsdEnv();
  ~SsdEnv();  // joins the background thread
  SsdEnv(const SsdEnv&) = delete;
  SsdEnv& operator=(const SsdEnv&) = delete;

  leveldb::Env* env();

  // Between the two, files that LevelDB removes stay where they are; the second removes them.
  void HoldDeletions();
  void ReleaseDeletions();

  // Between the two, LevelDB's background work waits.
  void HoldWork();
  void ReleaseWork();

  // LevelDB's background work runs only when `due`, which the background thread asks, says so. Work
  // that was not due is looked at again when there is more of it, and at ReconsiderWork(). To be
  // set before LevelDB is opened.
  void RunWorkWhen(std::function<bool()> due);
  void ReconsiderWork();

  // The table files that make up the database, as LevelDB's MANIFEST has it. Null before LevelDB
  // has written one, and when it has a key that is none of ours.
  std::shared_ptr<const LevelFiles> files() const;

  // Paths of the files that are open for writing now.
  std::set<std::string> FilesBeingWritten() const;

  // Of LevelDB, and of who reads its files.
  std::atomic<int64_t>* read_counter();
  int64_t bytes_read() const;
  int64_t bytes_written() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_SSD_ENV_H_
