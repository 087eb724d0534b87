#include "cc_ops/engine/background.h"

#include <pthread.h>

#include <utility>

namespace tf_hps {

Background::Background(const char* thread_name) : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), thread_name);
}

Background::~Background() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Background::Schedule(std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void Background::Wait() {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [this] { return queue_.empty() && !running_; });
}

void Background::Hold() {
  const std::lock_guard<std::mutex> lock(mu_);
  held_ = true;
}

void Background::Release() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    held_ = false;
  }
  changed_.notify_all();
}

void Background::Run() {
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || (!held_ && !queue_.empty()); });
    if (queue_.empty() || (held_ && stopping_)) return;
    {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
      lock.unlock();
      work();
      lock.lock();
    }
    running_ = false;
    if (queue_.empty()) changed_.notify_all();
  }
}

}  // namespace tf_hps
