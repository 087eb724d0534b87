// A named thread that runs what it is given, in order.

#ifndef TF_HPS_CC_OPS_ENGINE_BACKGROUND_H_
#define TF_HPS_CC_OPS_ENGINE_BACKGROUND_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tf_hps {

// Thread-safe.
class Background {
 public:
  explicit Background(const char* thread_name);  // at most 15 characters
  ~Background();                                 // runs what is left, unless held, and joins
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void Schedule(std::function<void()> work);

  // Returns when all that was scheduled before has run.
  void Wait();

  // Between the two, nothing new is begun.
  void Hold();
  void Release();

 private:
  void Run();

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool running_ = false;
  bool held_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: uses the members above
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_BACKGROUND_H_
