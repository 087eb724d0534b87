#ifndef TF_HPS_CC_OPS_ENGINE_UNINITIALIZED_VECTOR_H_
#define TF_HPS_CC_OPS_ENGINE_UNINITIALIZED_VECTOR_H_

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace tf_hps {

// Leaves elements that are made without a value as the memory is.
template <typename T>
struct UninitializedAllocator : std::allocator<T> {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  template <typename U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };

  template <typename U>
  void construct(U* element) {
    ::new (static_cast<void*>(element)) U;
  }
  template <typename U, typename... Args>
  void construct(U* element, Args&&... args) {
    ::new (static_cast<void*>(element)) U(std::forward<Args>(args)...);
  }
};

// A vector for scratch that is written before it is read: growing it costs no pass over memory.
template <typename T>
using UninitializedVector = std::vector<T, UninitializedAllocator<T>>;

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_UNINITIALIZED_VECTOR_H_
