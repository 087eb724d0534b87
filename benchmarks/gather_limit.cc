// What no lookup can beat: rows gathered from a dense array, with the next rows prefetched, and a
// copy. Called from benchmarks/systems/gather.py.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kPrefetchDistance = 16;

template <int64_t kDim>
void GatherRows(const float* rows, int64_t any_dim, const int64_t* index, int64_t n, float* out) {
  const int64_t dim = kDim > 0 ? kDim : any_dim;
  for (int64_t i = 0; i < n; ++i) {
    if (i + kPrefetchDistance < n) {
      const char* next = reinterpret_cast<const char*>(rows + index[i + kPrefetchDistance] * dim);
      for (int64_t byte = 0; byte < dim * 4; byte += 64) __builtin_prefetch(next + byte);
    }
    std::memcpy(out + i * dim, rows + index[i] * dim, sizeof(float) * static_cast<size_t>(dim));
  }
}

void Gather(const float* rows, int64_t dim, const int64_t* index, int64_t n, float* out) {
  switch (dim) {
    case 8:
      return GatherRows<8>(rows, dim, index, n, out);
    case 16:
      return GatherRows<16>(rows, dim, index, n, out);
    case 64:
      return GatherRows<64>(rows, dim, index, n, out);
    default:
      return GatherRows<0>(rows, dim, index, n, out);
  }
}

// Runs work(round, thread) on all threads, round after round; they wait for each other by spinning.
// Returns the seconds of each round.
template <typename Work>
std::vector<double> Rounds(int64_t rounds, int64_t threads, const Work& work) {
  std::atomic<int64_t> started{0};
  std::atomic<int64_t> finished{0};
  const auto wait_for = [](const std::atomic<int64_t>& counter, int64_t value) {
    for (int spins = 0; counter.load(std::memory_order_acquire) < value; ++spins) {
      if (spins > 10000) std::this_thread::yield();
    }
  };
  const auto help = [&](int64_t thread) {
    for (int64_t round = 0; round < rounds; ++round) {
      wait_for(started, round + 1);
      work(round, thread);
      finished.fetch_add(1, std::memory_order_release);
    }
  };
  std::vector<std::thread> helpers;
  for (int64_t t = 1; t < threads; ++t) helpers.emplace_back(help, t);
  std::vector<double> seconds;
  for (int64_t round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    started.store(round + 1, std::memory_order_release);
    work(round, 0);
    wait_for(finished, (round + 1) * (threads - 1));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    seconds.push_back(elapsed.count());
  }
  for (std::thread& helper : helpers) helper.join();
  return seconds;
}

}  // namespace

#define TF_HPS_EXPORT extern "C" __attribute__((visibility("default")))

// Gathers each of the batches [batches, n] in turn into out [n, dim]; seconds [count].
TF_HPS_EXPORT void GatherSeconds(const float* rows, int64_t dim, const int64_t* indices,
                                 int64_t batches, int64_t n, int64_t threads, float* out,
                                 int64_t count, double* seconds) {
  const auto work = [=](int64_t round, int64_t thread) {
    const int64_t begin = n * thread / threads;
    const int64_t end = n * (thread + 1) / threads;
    const int64_t* index = indices + round % batches * n;
    Gather(rows, dim, index + begin, end - begin, out + begin * dim);
  };
  const std::vector<double> result = Rounds(count, threads, work);
  std::copy(result.begin(), result.end(), seconds);
}

// Bytes read and written per second by a copy of `bytes`.
TF_HPS_EXPORT double CopyBandwidth(int64_t bytes, int64_t threads) {
  const std::unique_ptr<char[]> from(new char[bytes]());
  const std::unique_ptr<char[]> to(new char[bytes]());
  const auto work = [&](int64_t, int64_t thread) {
    const int64_t begin = bytes * thread / threads;
    const int64_t end = bytes * (thread + 1) / threads;
    std::memcpy(to.get() + begin, from.get() + begin, static_cast<size_t>(end - begin));
  };
  std::vector<double> seconds = Rounds(5, threads, work);
  std::sort(seconds.begin(), seconds.end());
  return 2 * static_cast<double>(bytes) / seconds[seconds.size() / 2];
}
