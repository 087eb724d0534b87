// Kills processes that use a store, and looks at what they leave.
//
//   tf_hps_crash_test [--kills=500] [--seconds=0] [--seed=1] [--directory=/tmp]
//
// A process trains, evicts, commits, saves and restores on three tables (crash_world.h), and is
// killed with SIGKILL after a random time, or before its n-th file operation, or before its n-th
// one of a kind: while it opens the store, too. After half of the kills the power fails as well
// (power_cut.h). A second process then opens the store, which must be exactly at its last
// acknowledged commit, or at the one that was being made, row by row with state; each earlier
// commit that is to be kept must be listed, and each that is listed must open exactly too. Every
// checkpoint that was complete must restore exactly, any other exactly or with an error and no
// effect. Then the next process goes on from there. After some kills all starts anew in another
// directory.
//
// What a process did is in memory that it shares with this one, which outlives it as a journal
// would.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cc_ops/engine/file_fault.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/store_files.h"
#include "tests/crash/crash_world.h"
#include "tests/crash/power_cut.h"

namespace tf_hps {
namespace {

constexpr int kKillsPerStore = 10;
constexpr int kSecondsToVerify = 120;
constexpr int64_t kRememberedCommits = 100;  // more than a process makes

const char* const kFileOpNames[kFileOps] = {"open", "read",   "create", "write", "sync",  "rename",
                                            "link", "remove", "list",   "stat",  "mkdir", "lock"};
// About how often a process does each, to choose the n-th from.
constexpr int kFileOpsPerProcess[kFileOps] = {200, 900, 130, 1300, 250, 40,
                                              140, 120, 110, 140,  40,  10};

enum Phase { kOpening, kOperating, kClosing = kOperating + 9, kPhases };
const char* const kPhaseNames[kPhases] = {"open",    "lookup", "create", "upsert",
                                          "remove",  "train",  "commit", "save",
                                          "restore", "export", "close"};

// What a process tells, also when it is dead.
struct Shared {
  std::atomic<int> phase;
  std::atomic<int64_t> begun, done;   // operations
  std::atomic<int64_t> acknowledged;  // last commit that was made or found
  std::atomic<int64_t> file_ops, file_ops_of[kFileOps];
  std::atomic<int> killed_before;  // a FileOp, or -1
  std::atomic<int64_t> verified_commit;
  char message[4096];
};
Shared* shared = nullptr;

// How one process dies.
struct Plan {
  int64_t operations;
  int64_t microseconds = -1;  // after this time, or
  int64_t nth = -1;           // before this file operation,
  int file_op = -1;           // counting those of one kind or, if -1, all
  int power = 0;              // 0: stays; 1: kWorst; 2: kMixed
  explicit Plan(std::mt19937_64* rng) : operations(20 + (*rng)() % 60) {
    switch ((*rng)() % 4) {
      case 0:
        microseconds = static_cast<int64_t>((*rng)() % 80000);
        break;
      case 1:
        nth = static_cast<int64_t>((*rng)() % ((*rng)() % 3 == 0 ? 60 : 3500));
        break;
      default:
        file_op = static_cast<int>((*rng)() % kFileOps);
        nth = static_cast<int64_t>((*rng)() % kFileOpsPerProcess[file_op]);
    }
    if ((*rng)() % 2 == 0) power = 1 + static_cast<int>((*rng)() % 2);
  }

  std::string ToString() const {
    const char* const powers[] = {"", ", power cut (worst case)", ", power cut (mixed)"};
    return absl::StrCat(
        microseconds >= 0
            ? absl::StrCat("killed after ", microseconds, " us")
            : absl::StrCat("killed before ", file_op < 0 ? "file operation" : kFileOpNames[file_op],
                           " number ", nth),
        powers[power]);
  }
};

int64_t kill_at = -1;
int kill_file_op = -1;

int KillAtNth(FileOp op, const std::string&) {
  const int kind = static_cast<int>(op);
  const int64_t all = shared->file_ops++, of_kind = shared->file_ops_of[kind]++;
  if (kill_at >= 0 &&
      (kill_file_op < 0 ? all == kill_at : kind == kill_file_op && of_kind == kill_at)) {
    shared->killed_before = kind;
    ::kill(::getpid(), SIGKILL);
    ::pause();
  }
  return 0;
}

[[noreturn]] void Exit(const absl::Status& status) {
  if (!status.ok()) {
    std::snprintf(shared->message, sizeof(shared->message), "%s", status.ToString().c_str());
  }
  ::_exit(status.ok() ? 0 : 1);
}

// One directory with a store and its checkpoints, through several deaths.
class Story {
 public:
  Story(const std::string& directory, uint64_t seed)
      : directory_(directory),
        rng_(seed),
        world_(MakeFolders(directory)),
        power_(directory + "/disk", directory + "/shadow"),
        keep_commits_(1 + static_cast<int64_t>(seed % 3)),
        commits_{{0, world_.models()}} {}

  // Lets a process live and die, and checks what it left. `killed`: unless it came to its end.
  absl::Status NextDeath(bool* killed, std::string* what) {
    const Plan plan(&rng_);
    const uint64_t seed = rng_();
    shared->phase = kOpening;
    shared->begun = shared->done = 0;
    shared->file_ops = 0;
    for (auto& count : shared->file_ops_of) count = 0;
    shared->killed_before = -1;
    shared->acknowledged = commit_;
    shared->message[0] = '\0';
    const pid_t child = ::fork();
    if (child == 0) Exit(Live(plan, seed));
    if (plan.microseconds >= 0) {
      ::usleep(static_cast<useconds_t>(plan.microseconds));
      ::kill(child, SIGKILL);
    }
    TF_HPS_RETURN_IF_ERROR(Wait(child, killed));
    *what = absl::StrCat(plan.ToString(), *killed ? ", during " : ", came to its end, after ",
                         kPhaseNames[shared->phase]);
    if (*killed && plan.power != 0) {
      power_.CutPower(plan.power == 1 ? PowerCut::Mode::kWorst : PowerCut::Mode::kMixed, &rng_);
    }
    const pid_t verifier = ::fork();
    if (verifier == 0) {
      ::alarm(kSecondsToVerify);
      Exit(Verify(plan, seed));
    }
    bool verifier_killed = false;
    TF_HPS_RETURN_IF_ERROR(Wait(verifier, &verifier_killed));
    if (verifier_killed) return absl::DeadlineExceededError("reopening did not end");
    Outcome outcome = Replay(plan, seed);
    for (const auto& [name, unused] : outcome.doubtful) world_.RemoveFiles(name);
    world_.checkpoints() = std::move(outcome.complete);
    commit_ = shared->verified_commit;
    commits_ = std::move(outcome.commits);
    commits_.erase(commits_.begin(), commits_.lower_bound(commit_ - kRememberedCommits));
    commits_.erase(commits_.upper_bound(commit_), commits_.end());
    world_.set_models(commits_.at(commit_));
    return absl::OkStatus();
  }

 private:
  struct Outcome {
    std::map<int64_t, CrashWorld::Models> commits;
    std::map<std::string, CrashWorld::Checkpoint> complete, doubtful;
  };

  static std::string MakeFolders(const std::string& directory) {
    CreateDirectories(directory + "/disk/store").IgnoreError();
    CreateDirectories(directory + "/disk/checkpoints").IgnoreError();
    return directory + "/disk/checkpoints";
  }

  std::string StorePath() const { return directory_ + "/disk/store"; }

  static absl::Status Wait(pid_t child, bool* killed) {
    int status = 0;
    ::waitpid(child, &status, 0);
    *killed = WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGALRM);
    if (*killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("process ended with status ", status, ": ", shared->message));
  }

  absl::Status Live(const Plan& plan, uint64_t seed) {
    power_.RecordSyncs();
    kill_at = plan.nth;
    kill_file_op = plan.file_op;
    file_fault_hook = KillAtNth;
    TF_HPS_ASSIGN_OR_RETURN(CrashTables tables,
                            CrashTables::Open(StorePath(), seed, keep_commits_));
    int64_t commit = tables.last_commit();
    if (commit != commit_) {
      return absl::InternalError(absl::StrCat("DIFFERENCE: at commit ", commit, ", not ", commit_));
    }
    bool changed = false;  // since the last commit
    for (int64_t i = 0; i < plan.operations; ++i) {
      const auto kind = CrashWorld::KindOf(seed, i);
      const bool commits = kind == CrashWorld::Kind::kCommit;
      changed = !commits && (changed || Changes(kind));
      shared->phase = kOperating + static_cast<int>(kind);
      shared->begun = i + 1;
      TF_HPS_RETURN_IF_ERROR(world_.Do(seed, i, &tables));
      if (commits) shared->acknowledged = ++commit;
      shared->done = i + 1;
    }
    shared->phase = kClosing;
    shared->begun = plan.operations + 1;
    TF_HPS_RETURN_IF_ERROR(tables.Close(true));
    TF_HPS_ASSIGN_OR_RETURN(const int64_t closed_at, ReadCurrent(StorePath()));
    if (changed && closed_at != commit + 1) {
      return absl::InternalError(absl::StrCat("DIFFERENCE: closed at commit ", closed_at,
                                              ", after changes since commit ", commit));
    }
    shared->acknowledged = closed_at;
    shared->done = plan.operations + 1;
    return absl::OkStatus();
  }

  bool Changes(CrashWorld::Kind kind) {
    switch (kind) {
      case CrashWorld::Kind::kLookup:
      case CrashWorld::Kind::kCommit:
      case CrashWorld::Kind::kSave:
      case CrashWorld::Kind::kExport:
        return false;
      case CrashWorld::Kind::kRestore:
        return !world_.checkpoints().empty();
      default:
        return true;
    }
  }

  // What must be there.
  Outcome Replay(const Plan& plan, uint64_t seed) const {
    CrashWorld world = world_;
    Outcome outcome;
    outcome.commits = commits_;
    int64_t next_commit = commit_ + 1;
    auto before = world.checkpoints();
    for (int64_t i = 0; i < shared->begun; ++i) {
      const bool closes = i == plan.operations;
      if (closes || CrashWorld::KindOf(seed, i) == CrashWorld::Kind::kCommit) {
        outcome.commits[next_commit++] = world.models();
      }
      before = world.checkpoints();
      if (!closes) world.Do(seed, i, nullptr).IgnoreError();
    }
    // Those that the last operation began to write, or to remove, are doubtful.
    if (shared->done == shared->begun) before = world.checkpoints();
    outcome.doubtful = before;
    for (const auto& [name, checkpoint] : world.checkpoints()) {
      (before.count(name) > 0 ? outcome.complete : outcome.doubtful).emplace(name, checkpoint);
      if (before.count(name) > 0) outcome.doubtful.erase(name);
    }
    return outcome;
  }

  absl::Status Verify(const Plan& plan, uint64_t seed) {
    power_.RecordSyncs();
    TF_HPS_ASSIGN_OR_RETURN(CrashTables tables,
                            CrashTables::Open(StorePath(), seed + 1, keep_commits_));
    const int64_t commit = tables.last_commit();
    const bool in_flight = shared->begun > shared->done;
    Outcome outcome = Replay(plan, seed);
    if (commit < shared->acknowledged || commit > shared->acknowledged + (in_flight ? 1 : 0) ||
        outcome.commits.count(commit) == 0) {
      return absl::InternalError(absl::StrCat("DIFFERENCE: reopened at commit ", commit,
                                              ", last acknowledged was ",
                                              shared->acknowledged.load()));
    }
    TF_HPS_RETURN_IF_ERROR(VerifyCheckpoints(&outcome, outcome.commits[commit], &tables));
    const std::vector<int64_t> numbers = tables.store()->Commits();
    TF_HPS_RETURN_IF_ERROR(tables.Close(false));
    for (int64_t number = std::max<int64_t>(1, commit - keep_commits_ + 1); number <= commit;
         ++number) {
      if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
        return absl::InternalError(
            absl::StrCat("DIFFERENCE: at commit ", commit, " there is no commit ", number));
      }
    }
    for (const int64_t number : numbers) {
      TF_HPS_ASSIGN_OR_RETURN(CrashTables opened,
                              CrashTables::Open(StorePath(), seed + 2, keep_commits_, number));
      TF_HPS_RETURN_IF_ERROR(CrashWorld::Compare(outcome.commits.at(number), 0, &opened));
      TF_HPS_RETURN_IF_ERROR(opened.Close(false));
    }
    shared->verified_commit = commit;
    return CheckNoRubbish(numbers.size());
  }

  absl::Status VerifyCheckpoints(Outcome* outcome, CrashWorld::Models models, CrashTables* tables) {
    TF_HPS_RETURN_IF_ERROR(CrashWorld::Compare(models, 0, tables));
    for (const bool complete : {true, false}) {
      world_.checkpoints() = complete ? outcome->complete : outcome->doubtful;
      for (const auto& [name, checkpoint] : world_.checkpoints()) {
        const absl::Status restored = world_.Restore(name, tables);
        if (complete) TF_HPS_RETURN_IF_ERROR(restored);
        for (size_t t = 0; restored.ok() && t < checkpoint.models.size(); ++t) {
          models[checkpoint.first + t] = checkpoint.models[t];
        }
        const absl::Status same = CrashWorld::Compare(models, 0, tables);
        if (same.ok()) continue;
        return absl::InternalError(absl::StrCat("checkpoint ", name, ", restoring which gave ",
                                                restored.ToString(), ": ", same.message()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckNoRubbish(size_t expected) const {
    TF_HPS_ASSIGN_OR_RETURN(const auto names, ListDirectory(StorePath()));
    for (const std::string& name : names) {
      if (name != "CURRENT" && name != "FORMAT" && name != "LOCK" && name != "commits" &&
          !absl::EndsWith(name, ".tmp")) {
        return absl::InternalError(absl::StrCat("a closed store holds ", name));
      }
    }
    const auto commits = ListDirectory(StorePath() + "/commits");
    if ((commits.ok() ? commits->size() : 0) == expected) return absl::OkStatus();
    return absl::InternalError("there are more commits than are kept");
  }

  const std::string directory_;
  std::mt19937_64 rng_;
  CrashWorld world_;
  PowerCut power_;
  const int64_t keep_commits_;
  int64_t commit_ = 0;
  std::map<int64_t, CrashWorld::Models> commits_;  // as they were made
};

int64_t IntFlag(int argc, char** argv, const char* name, int64_t otherwise) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    int64_t value = 0;
    if (absl::ConsumePrefix(&flag, absl::StrCat("--", name, "=")) &&
        absl::SimpleAtoi(flag, &value)) {
      return value;
    }
  }
  return otherwise;
}

// Prints what happened; whether each kind of moment was met.
bool Report(int64_t kills, int64_t power_cuts, const int64_t* phases, const int64_t* before) {
  bool all = true;
  std::printf("%ld kills, 0 differences; %ld with a power cut\nduring:", kills, power_cuts);
  for (int i = 0; i < kPhases; ++i) {
    std::printf(" %s %ld", kPhaseNames[i], phases[i]);
    all = all && phases[i] > 0;
  }
  std::printf("\nbefore a file operation:");
  for (int i = 0; i < kFileOps; ++i) {
    std::printf(" %s %ld", kFileOpNames[i], before[i]);
    all = all && before[i] > 0;
  }
  std::printf("\n");
  return all;
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int64_t wanted = IntFlag(argc, argv, "kills", 500);
  const int64_t seconds = IntFlag(argc, argv, "seconds", 0);
  const int64_t first_seed = IntFlag(argc, argv, "seed", 1);
  std::string parent = TemporaryParent();
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    if (absl::ConsumePrefix(&flag, "--directory=")) parent = std::string(flag);
  }
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  shared = new (memory) Shared();
  const auto start = std::chrono::steady_clock::now();
  const auto out_of_time = [&] {
    return seconds > 0 && std::chrono::steady_clock::now() - start > std::chrono::seconds(seconds);
  };
  int64_t kills = 0, power_cuts = 0, phases[kPhases] = {}, before[kFileOps] = {};
  for (int64_t seed = first_seed; kills < wanted && !out_of_time(); ++seed) {
    std::string directory = JoinPath(parent, "tf_hps_crash-XXXXXX");
    if (::mkdtemp(directory.data()) == nullptr) {
      std::perror(directory.c_str());
      return 2;
    }
    auto story = std::make_unique<Story>(directory, static_cast<uint64_t>(seed));
    for (int death = 0, of_story = 0; of_story < kKillsPerStore && kills < wanted; ++death) {
      bool killed = false;
      std::string what;
      const absl::Status status = story->NextDeath(&killed, &what);
      if (!status.ok()) {
        std::printf(
            "FAILED after %ld kills: %s\n  death %d with seed %ld: %s\n  files are in %s\n"
            "  again: %s --seed=%ld --kills=%d\n",
            kills, status.ToString().c_str(), death, seed, what.c_str(), directory.c_str(), argv[0],
            seed, of_story + 1);
        return 1;
      }
      if (!killed) continue;
      ++kills, ++of_story;
      power_cuts += absl::StrContains(what, "power cut");
      ++phases[shared->phase];
      if (shared->killed_before >= 0) ++before[shared->killed_before];
      if (kills % 100 == 0) std::printf("%ld kills\n", kills);
    }
    RemoveTree(directory).IgnoreError();
  }
  const bool all = Report(kills, power_cuts, phases, before);
  if (wanted < 500 || kills < wanted || all) return 0;
  std::printf("FAILED: some moments were never met\n");
  return 1;
}

}  // namespace
}  // namespace tf_hps

int main(int argc, char** argv) { return tf_hps::Main(argc, argv); }
