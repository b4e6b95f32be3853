// Mutex, SharedMutex and CondVar with clang's thread-safety annotations (checked by the analyze preset,
// invisible to gcc). Thin wrappers over the standard ones, which the thread sanitizer understands.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define MP_TSA(x) __attribute__((x))
#else
#define MP_TSA(x)
#endif
#define CAPABILITY(x) MP_TSA(capability(x))
#define SCOPED_CAPABILITY MP_TSA(scoped_lockable)
#define GUARDED_BY(x) MP_TSA(guarded_by(x))
#define PT_GUARDED_BY(x) MP_TSA(pt_guarded_by(x))
#define REQUIRES(...) MP_TSA(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) MP_TSA(requires_shared_capability(__VA_ARGS__))
#define ACQUIRE(...) MP_TSA(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) MP_TSA(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) MP_TSA(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) MP_TSA(release_shared_capability(__VA_ARGS__))
#define RELEASE_GENERIC(...) MP_TSA(release_generic_capability(__VA_ARGS__))
#define EXCLUDES(...) MP_TSA(locks_excluded(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS MP_TSA(no_thread_safety_analysis)

namespace moonpool {

class CAPABILITY("mutex") Mutex {
 public:
  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CAPABILITY("shared_mutex") SharedMutex {
 public:
  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }
  void LockShared() ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void UnlockShared() RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

class SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~WriterLock() RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.LockShared(); }
  ~ReaderLock() RELEASE_GENERIC() { mutex_.UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Waits are woken spuriously too: callers loop over their condition. Waits with a time limit go through
// Clock::WaitUntil, so that a fake clock can end them.
class CondVar {
 public:
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  void WaitFor(Mutex& mutex, std::chrono::nanoseconds timeout) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(lock, timeout);
    lock.release();
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace moonpool
