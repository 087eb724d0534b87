// What a power cut leaves of a directory tree.
//
// A process that records (RecordSyncs) notes in a journal what each of its successful fsync and
// fdatasync calls made durable, LevelDB's among them: of a file, as many bytes as it had; of a
// directory, the names in it. The journal and hard links to the synced files outlive the process.
// After it was killed, CutPower() turns the tree into one that a power cut may have left:
//
//   kWorst   all that was not synced is gone: files end where they were last synced, names that
//            were made, renamed or removed after their directory was last synced are as before
//   kMixed   each such name by itself is as before or as now, and each file ends somewhere between
//            its synced and its present length, as file systems write back in any order
//
// Not simulated: bytes overwritten in place (the engine appends to files and replaces them),
// anything below the file system, such as a disk that lies about a sync or tears a sector.

#ifndef TF_HPS_TESTS_CRASH_POWER_CUT_H_
#define TF_HPS_TESTS_CRASH_POWER_CUT_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>

namespace tf_hps {

// Of the tree at `root`. Not thread-safe, but for RecordSyncs, which concerns the whole process.
class PowerCut {
 public:
  enum class Mode { kWorst, kMixed };

  // Takes all of the tree for durable. Keeps its notes in `shadow`, on the same file system.
  PowerCut(const std::string& root, const std::string& shadow);

  // From now on this process notes what it syncs. Call it in the child.
  void RecordSyncs();

  // Changes the tree, and takes what is left for durable.
  void CutPower(Mode mode, std::mt19937_64* rng);

 private:
  struct Entry {
    uint64_t inode;
    uint64_t directory;  // 0: a file; else a number that no other directory has
  };
  using Names = std::map<std::string, Entry>;
  struct Durable {
    std::map<uint64_t, uint64_t> file_bytes;     // by inode
    std::map<uint64_t, uint64_t> directory_ids;  // by inode, as long as the directory lives
    std::map<uint64_t, Names> names;             // by directory id
    uint64_t next_id = 1;
  };

  void TakeForDurable();
  Durable ReadJournal() const;
  void Rebuild(const Durable& durable, uint64_t directory, const std::string& now,
               const std::string& to, Mode mode, std::mt19937_64* rng) const;
  void CopySynced(const Durable& durable, uint64_t inode, const std::string& now,
                  const std::string& to, Mode mode, std::mt19937_64* rng) const;

  const std::string root_, shadow_;
};

}  // namespace tf_hps

#endif  // TF_HPS_TESTS_CRASH_POWER_CUT_H_
