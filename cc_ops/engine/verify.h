// A full check of a store's commit, or of the tables that were saved with a checkpoint: every file,
// every block and every row. It changes nothing: LevelDB opens links to the files (or copies
// of the small ones) in a temporary directory. A store may be in use meanwhile.

#ifndef TF_HPS_CC_OPS_ENGINE_VERIFY_H_
#define TF_HPS_CC_OPS_ENGINE_VERIFY_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cc_ops/engine/row_check.h"
#include "cc_ops/engine/saved_tables.h"
#include "cc_ops/engine/ssd_instance.h"

namespace tf_hps {

struct Finding {
  std::string path;
  std::string text;
  // Else it is harmless: rows of a dropped table, what a killed process left.
  bool damage;
};

// Not thread-safe.
class Verifier {
 public:
  // As for ReadSavedTables; what cannot be read is among the findings. `commit`, if positive, is
  // the one of a store to look at, and all to look at; 0: its directory and its last commit.
  Verifier(const std::string& path, const std::string& save_id, int64_t commit = 0);
  ~Verifier();  // removes the temporary directory
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  // Checks a little more. False: that was all.
  bool Next();

  // From 0 to 1.
  double progress() const;
  int64_t rows() const { return row_check_ ? row_check_->rows() : 0; }  // checked so far
  int64_t files() const { return files_; }                              // likewise

  // What has been found since the last call.
  std::vector<Finding> TakeFindings();

 private:
  void Damage(const std::string& path, absl::string_view text) {
    findings_.push_back({path, std::string(text), true});
  }
  void Note(const std::string& path, absl::string_view text) {
    findings_.push_back({path, std::string(text), false});
  }
  void CheckStoreDirectory();
  void CheckOtherCommits(int64_t current);
  bool Begin();
  // Whether the store, being in use, has taken the commit away.
  bool HasGone(int64_t number) const;
  int64_t FindCommit();
  bool StageCommit(int64_t number);
  absl::Status MakeStagingDirectory();
  absl::Status StageFile(const SsdTier::File& file, const std::string& from);
  void CheckNoOtherFiles();
  void CheckFile(size_t i);
  void OpenInstance(int instance);
  bool ScanInstance();
  void CheckRowCounts();
  std::string InstanceName(int instance) const;
  // A message about a staged file or directory as one about what it was staged from.
  std::string AboutSource(absl::string_view message) const;
  std::string StagedPath(const SsdTier::File& file) const;

  const std::string path_;
  const std::string save_id_;
  const int64_t commit_;
  SavedTables saved_;
  std::vector<Finding> findings_;

  std::string staging_;
  bool can_link_ = false;
  std::vector<bool> staged_;         // by file
  std::set<int> damaged_instances_;  // whose rows cannot be looked at

  size_t next_file_ = 0;
  int next_instance_ = 0;
  std::unique_ptr<SsdInstance> instance_;
  std::unique_ptr<SsdInstance::Cursor> cursor_;
  std::unique_ptr<RowCheck> row_check_;

  int64_t files_ = 0;
  int64_t bytes_ = 0;
  int64_t expected_bytes_ = 0;
  bool begun_ = false;
  bool done_ = false;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_VERIFY_H_
