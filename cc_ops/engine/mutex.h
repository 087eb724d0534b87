// Annotated locks over the standard library's.
//
// Not absl::Mutex: its code lives in TensorFlow's library, which no sanitizer build instruments, so
// ThreadSanitizer could not see the order that it establishes.

#ifndef TF_HPS_CC_OPS_ENGINE_MUTEX_H_
#define TF_HPS_CC_OPS_ENGINE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace tf_hps {

// The Assert...() functions do nothing. They tell Clang's thread safety analysis what it cannot
// see: which locks the caller of a lambda holds, or that two names are one lock.

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mu_.try_lock(); }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

// Lets many operations through at once, or one that needs the whole store still (commit, export,
// restore). A waiting exclusive holder is let in before new shared ones, so that a stream of
// lookups cannot starve a commit. Not recursive: a thread inside must not enter again.
class ABSL_LOCKABLE Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void EnterShared() ABSL_SHARED_LOCK_FUNCTION() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [this] { return !exclusive_ && waiting_exclusive_ == 0; });
    ++shared_;
  }

  void LeaveShared() ABSL_UNLOCK_FUNCTION() {
    std::unique_lock<std::mutex> lock(mu_);
    if (--shared_ == 0) changed_.notify_all();
  }

  void EnterExclusive() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    std::unique_lock<std::mutex> lock(mu_);
    ++waiting_exclusive_;
    changed_.wait(lock, [this] { return !exclusive_ && shared_ == 0; });
    --waiting_exclusive_;
    exclusive_ = true;
  }

  void LeaveExclusive() ABSL_UNLOCK_FUNCTION() {
    std::unique_lock<std::mutex> lock(mu_);
    exclusive_ = false;
    changed_.notify_all();
  }

  void AssertShared() const ABSL_ASSERT_SHARED_LOCK() {}
  void AssertExclusive() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  int shared_ = 0;
  int waiting_exclusive_ = 0;
  bool exclusive_ = false;
};

class ABSL_SCOPED_LOCKABLE SharedPass {
 public:
  explicit SharedPass(Gate* gate) ABSL_SHARED_LOCK_FUNCTION(gate) : gate_(gate) {
    gate_->EnterShared();
  }
  ~SharedPass() ABSL_UNLOCK_FUNCTION() { gate_->LeaveShared(); }
  SharedPass(const SharedPass&) = delete;
  SharedPass& operator=(const SharedPass&) = delete;

 private:
  Gate* const gate_;
};

class ABSL_SCOPED_LOCKABLE ExclusivePass {
 public:
  explicit ExclusivePass(Gate* gate) ABSL_EXCLUSIVE_LOCK_FUNCTION(gate) : gate_(gate) {
    gate_->EnterExclusive();
  }
  ~ExclusivePass() ABSL_UNLOCK_FUNCTION() { gate_->LeaveExclusive(); }
  ExclusivePass(const ExclusivePass&) = delete;
  ExclusivePass& operator=(const ExclusivePass&) = delete;

 private:
  Gate* const gate_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_MUTEX_H_
