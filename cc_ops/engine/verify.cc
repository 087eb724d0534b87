#include "cc_ops/engine/verify.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/ssd_key.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/store_files.h"
#include "cc_ops/engine/table_file.h"

namespace tf_hps {
namespace {

constexpr int64_t kRowsAtATime = 1 << 16;
// A store that is in use may remove a commit while its files are being linked.
constexpr int kAttempts = 5;

bool OneOf(const std::string& name, std::initializer_list<absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Verifier::Verifier(const std::string& path, const std::string& save_id, int64_t commit)
    : path_(path), save_id_(save_id), commit_(commit) {}

Verifier::~Verifier() {
  cursor_.reset();
  instance_.reset();
  if (!staging_.empty()) RemoveTree(staging_).IgnoreError();
}

double Verifier::progress() const {
  if (done_) return 1;
  return expected_bytes_ > 0 ? std::min(1.0, static_cast<double>(bytes_) / expected_bytes_) : 0;
}

std::vector<Finding> Verifier::TakeFindings() { return std::exchange(findings_, {}); }

bool Verifier::Next() {
  if (done_) return false;
  if (!std::exchange(begun_, true)) {
    done_ = !Begin();
  } else if (next_file_ < saved_.files.size()) {
    CheckFile(next_file_++);
  } else if (cursor_ != nullptr) {
    if (!ScanInstance()) {
      cursor_.reset();
      instance_.reset();
    }
  } else if (next_instance_ < saved_.snapshot.instances) {
    OpenInstance(next_instance_++);
  } else {
    CheckRowCounts();
    done_ = true;
  }
  return !done_;
}

bool Verifier::Begin() {
  if (save_id_.empty() && commit_ == 0) CheckStoreDirectory();
  const std::vector<Finding> before = findings_;
  for (int attempt = 1;; ++attempt) {
    const int64_t number = FindCommit();
    const bool staged = number >= 0 && StageCommit(number);
    if (findings_.size() > before.size() && HasGone(number) && attempt < kAttempts) {
      findings_ = before;
      if (commit_ > 0) return false;
      continue;
    }
    if (!staged) return false;
    break;
  }
  CheckNoOtherFiles();
  row_check_ = std::make_unique<RowCheck>(saved_.snapshot);
  for (const SsdTier::File& file : saved_.snapshot.files) expected_bytes_ += file.bytes;
  for (const Snapshot::Table& table : saved_.snapshot.tables) {
    const absl::StatusOr<RowLayout> layout = LayoutOf(table.state);
    if (!layout.ok()) Damage(saved_.manifest, layout.status().message());
    expected_bytes_ += table.state.rows * EntryBytes(layout.value_or(RowLayout()));
  }
  return true;
}

bool Verifier::HasGone(int64_t number) const {
  if (!save_id_.empty()) return false;
  if (commit_ > 0) return !PathExists(CommitPath(path_, number));
  return ReadCurrent(path_).value_or(number) != number;
}

// The last commit; if CURRENT does not tell, the one of the largest number; -1: none.
int64_t Verifier::FindCommit() {
  if (!save_id_.empty()) return 0;
  if (commit_ > 0) return commit_;
  const absl::StatusOr<int64_t> current = ReadCurrent(path_);
  if (current.ok()) return *current;
  Damage(JoinPath(path_, "CURRENT"), current.status().message());
  const std::vector<int64_t> numbers = ListCommits(path_);
  return numbers.empty() ? -1 : numbers.back();
}

bool Verifier::StageCommit(int64_t number) {
  absl::StatusOr<SavedTables> saved =
      save_id_.empty() ? ReadCommit(path_, number) : ReadCheckpoint(path_, save_id_);
  if (!saved.ok()) {
    const std::string manifest =
        save_id_.empty() ? ManifestPath(path_, number) : FlatPath(path_, save_id_, 0);
    Damage(manifest, absl::IsNotFound(saved.status()) ? "is missing" : saved.status().message());
    return false;
  }
  saved_ = *std::move(saved);
  if (saved_.snapshot.instances == 0) return false;  // nothing was committed yet
  if (const absl::Status status = MakeStagingDirectory(); !status.ok()) {
    Damage(saved_.manifest, absl::StrCat("cannot be checked: ", status.message()));
    return false;
  }
  staged_.assign(saved_.files.size(), true);
  damaged_instances_.clear();
  for (size_t i = 0; i < saved_.files.size(); ++i) {
    const SsdTier::File& file = saved_.snapshot.files[i];
    const absl::Status status = StageFile(file, saved_.files[i]);
    if (status.ok()) continue;
    Damage(saved_.files[i], absl::IsNotFound(status) ? "is missing" : status.message());
    staged_[i] = false;
    damaged_instances_.insert(file.instance);
  }
  return true;
}

void Verifier::CheckStoreDirectory() {
  if (const absl::Status status = CheckFormatFile(path_); !status.ok()) {
    Damage(JoinPath(path_, "FORMAT"), status.message());
  }
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path_);
  if (!names.ok()) return Damage(path_, names.status().message());
  for (const std::string& name : *names) {
    if (OneOf(name, {"FORMAT", "LOCK", "CURRENT", "commits", "live", "TEMPORARY"})) continue;
    Note(JoinPath(path_, name), absl::EndsWith(name, ".tmp")
                                    ? "is left over from a write that did not end"
                                    : "is not part of a store");
  }
  const absl::StatusOr<int64_t> current = ReadCurrent(path_);
  if (current.ok()) CheckOtherCommits(*current);
}

void Verifier::CheckOtherCommits(int64_t current) {
  const std::string commits = JoinPath(path_, "commits");
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(commits);
  if (!names.ok()) return;  // a commit that is missing is found by its manifest
  for (const std::string& name : *names) {
    int64_t number;
    if (!absl::SimpleAtoi(name, &number)) {
      Note(JoinPath(commits, name), "is not a commit");
    } else if (number > current && ReadCurrent(path_).value_or(0) == current) {
      Note(JoinPath(commits, name),
           "is of a commit that has not come about; the next one removes it");
    }
  }
}

absl::Status Verifier::MakeStagingDirectory() {
  if (!staging_.empty()) TF_HPS_RETURN_IF_ERROR(RemoveTree(staging_));
  TF_HPS_ASSIGN_OR_RETURN(staging_, MakeTemporaryDirectory());
  const std::string probe = JoinPath(staging_, "probe");
  can_link_ = ::link(saved_.manifest.c_str(), probe.c_str()) == 0;
  if (!can_link_) {
    // Beside the store there is the same file system.
    const std::string parent = std::filesystem::absolute(path_).parent_path().string();
    std::string beside = JoinPath(parent, ".tf_hps-verify-XXXXXX");
    if (::mkdtemp(beside.data()) != nullptr) {
      can_link_ = ::link(saved_.manifest.c_str(), JoinPath(beside, "probe").c_str()) == 0;
      if (can_link_) std::swap(beside, staging_);
      RemoveTree(beside).IgnoreError();
    }
  }
  if (can_link_) TF_HPS_RETURN_IF_ERROR(RemoveTree(JoinPath(staging_, "probe")));
  for (int i = 0; i < saved_.snapshot.instances; ++i) {
    TF_HPS_RETURN_IF_ERROR(CreateDirectories(SsdTier::InstanceDirectory(staging_, i)));
  }
  return absl::OkStatus();
}

std::string Verifier::StagedPath(const SsdTier::File& file) const {
  return JoinPath(SsdTier::InstanceDirectory(staging_, file.instance), file.name);
}

absl::Status Verifier::StageFile(const SsdTier::File& file, const std::string& from) {
  if (!file.immutable) return SsdTier::RestoreFile(file, from, StagedPath(file));
  TF_HPS_ASSIGN_OR_RETURN(const std::string target, CanonicalPath(from));
  if (can_link_ && ::link(target.c_str(), StagedPath(file).c_str()) == 0) return absl::OkStatus();
  if (::symlink(target.c_str(), StagedPath(file).c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "link", StagedPath(file));
}

// Files among a commit's or a save's that its manifest does not name.
void Verifier::CheckNoOtherFiles() {
  std::set<std::string> expected(saved_.files.begin(), saved_.files.end());
  expected.insert(saved_.manifest);
  std::vector<std::string> directories;
  const std::string directory = std::filesystem::path(saved_.manifest).parent_path().string();
  directories.push_back(directory.empty() ? "." : directory);
  for (int i = 0; save_id_.empty() && i < saved_.snapshot.instances; ++i) {
    directories.push_back(SsdTier::InstanceDirectory(directory, i));
    expected.insert(directories.back());
  }
  for (const std::string& each : directories) {
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(each);
    if (!names.ok()) continue;  // its files are missing, too
    for (const std::string& name : *names) {
      const std::string path = directory.empty() ? name : JoinPath(each, name);
      const bool ours = save_id_.empty() || (absl::StartsWith(path, path_ + ".data-h") &&
                                             absl::EndsWith(name, "-of-" + save_id_));
      if (ours && expected.count(path) == 0) {
        Damage(path, absl::StrCat("is not among the files that ", saved_.manifest, " names"));
      }
    }
  }
}

void Verifier::CheckFile(size_t i) {
  const SsdTier::File& file = saved_.snapshot.files[i];
  ++files_;
  bytes_ += file.bytes;
  if (!staged_[i] || !file.immutable) return;  // the others have been checked as they were copied
  const absl::StatusOr<std::string> data = ReadFile(StagedPath(file));
  std::vector<std::string> damage;
  if (!data.ok()) {
    damage.emplace_back(data.status().message());
  } else if (static_cast<int64_t>(data->size()) != file.bytes) {
    damage.push_back(
        absl::StrCat("is damaged: it has ", data->size(), " bytes, expected ", file.bytes));
  } else {
    for (const std::string& what : TableFileDamage(*data)) {
      damage.push_back(absl::StrCat("is damaged: ", what));
    }
  }
  for (const std::string& what : damage) Damage(saved_.files[i], what);
  if (!damage.empty()) damaged_instances_.insert(file.instance);
}

std::string Verifier::InstanceName(int instance) const {
  if (!save_id_.empty()) return absl::StrCat(saved_.manifest, ", instance ", instance);
  return SsdTier::InstanceDirectory(CommitPath(path_, saved_.commit), instance);
}

std::string Verifier::AboutSource(absl::string_view message) const {
  const int instance = next_instance_ - 1;
  return absl::StrReplaceAll(
      message, {{SsdTier::InstanceDirectory(staging_, instance), InstanceName(instance)}});
}

void Verifier::OpenInstance(int instance) {
  if (damaged_instances_.count(instance) > 0) return;
  constexpr SsdInstance::Options kOptions = {1 << 20, 100};
  const auto open = [&]() -> absl::Status {
    TF_HPS_ASSIGN_OR_RETURN(
        instance_, SsdInstance::Open(SsdTier::InstanceDirectory(staging_, instance), kOptions));
    TF_HPS_ASSIGN_OR_RETURN(cursor_, instance_->NewCursor());
    return absl::OkStatus();
  };
  if (const absl::Status status = open(); !status.ok()) {
    Damage(InstanceName(instance), AboutSource(status.message()));
    damaged_instances_.insert(instance);
    instance_.reset();
    return;
  }
  (*cursor_)->SeekToFirst();
  row_check_->BeginInstance(instance);
}

bool Verifier::ScanInstance() {
  SsdInstance::Cursor& it = *cursor_;
  const int instance = next_instance_ - 1;
  for (int64_t n = 0; n < kRowsAtATime && it->Valid(); ++n, it->Next()) {
    const leveldb::Slice entry = it->key();
    const leveldb::Slice row = it->value();
    bytes_ += static_cast<int64_t>(entry.size() + row.size());
    const std::string wrong =
        row_check_->Check({entry.data(), entry.size()}, {row.data(), row.size()});
    if (!wrong.empty()) Damage(InstanceName(instance), wrong);
  }
  if (it->Valid()) return true;
  if (const absl::Status status = it.status(); !status.ok()) {
    Damage(InstanceName(instance), AboutSource(status.message()));
    damaged_instances_.insert(instance);
  }
  return false;
}

void Verifier::CheckRowCounts() {
  if (!damaged_instances_.empty()) return;  // rows are missing for a reason that has been given
  for (const RowCheck::Problem& problem : row_check_->CheckCounts()) {
    findings_.push_back({saved_.manifest, problem.text, problem.damage});
  }
}

}  // namespace tf_hps
