// store_writer: one process that works on a store directory, for tests that kill it or let several loose on one
// directory. Arguments: VERB ROOT SLOTS SEED COUNT. Exits 0 if all it saw was right, 1 with a sentence otherwise.
//
//   publish   publishes COUNT objects of the test conversation SEED, each longer than the one before; with
//             MOONPOOL_TEST_EXIT_AT=N in the environment the process ends at the N-th call of the file system,
//             as after a kill; without it the last line printed is the number of calls
//   churn     publishes, fetches and removes at random, COUNT times; or until it is killed if COUNT is 0, then with
//             a line after each
//   contend   publishes COUNT objects of few conversations, all processes the same ones
//   read      looks up and fetches the conversations SEED.. until standard input closes; every byte is compared
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/fault.h"
#include "base/log.h"
#include "bus/blobs/directory_store.h"
#include "support/hooked_file_system.h"
#include "support/kv_objects.h"

namespace moonpool::bus {
namespace {

using testing::ChainKeys;
using testing::Conversation;
using testing::HeaderFor;
using testing::PayloadFor;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "store_writer: %s\n", why.c_str());
  std::exit(1);
}

class Worker {
 public:
  Worker(FileSystem& files, Path root, Path slots, uint64_t quota_bytes) : slots_(std::move(slots)) {
    DirectoryStore::Options options;
    options.root = std::move(root);
    options.quota_bytes = quota_bytes;
    options.lock_wait_max = std::chrono::seconds(60);
    auto opened = DirectoryStore::Open(files, clock_, rng_, options);
    if (!opened) Die(opened.error().ToString());
    store_ = std::move(*opened);
  }

  void Publish(const std::vector<TokenId>& tokens) {
    const Path source = Name("in");
    testing::WriteFile(source, PayloadFor(tokens));
    auto reservation = store_->Reserve(PayloadFor(tokens).size());
    if (!reservation && reservation.error().code != ErrorCode::kQuota) Die(reservation.error().ToString());
    const auto receipt = store_->Publish({.header = HeaderFor(tokens), .source = source},
                                         reservation ? std::move(*reservation) : nullptr);
    const bool fine =
        receipt || receipt.error().code == ErrorCode::kAlreadyExists || receipt.error().code == ErrorCode::kQuota;
    if (!fine) Die(receipt.error().ToString());
    if (std::filesystem::exists(source)) Die("the saved file was not consumed");
  }

  // Whatever is offered for `tokens` must be whole; answers whether anything was.
  bool Check(const std::vector<TokenId>& tokens) {
    const auto keys = ChainKeys(tokens);
    const auto found = store_->BatchExists(keys);
    if (!found) Die(found.error().ToString());
    bool any = false;
    std::optional<ObjectId> last;
    for (size_t i = 0; i < found->size(); ++i) {
      if (!(*found)[i] || last == (*found)[i]->object) continue;
      last = (*found)[i]->object;
      const auto header = store_->ReadHeader(*last);
      if (!header && header.error().code == ErrorCode::kNotFound) continue;  // removed meanwhile: a clean miss
      if (!header) Die(header.error().ToString());
      if (!std::equal(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * testing::kTestBlockTokens),
                      header->tokens.begin())) {
        Die("an alias leads to other tokens");
      }
      const Path out = Name("out");
      const auto receipt = store_->Fetch(*header, out, Deadline(clock_, std::chrono::seconds(60)));
      if (!receipt && receipt.error().code == ErrorCode::kNotFound) continue;
      if (!receipt) Die(receipt.error().ToString());
      if (testing::ReadFile(out) != PayloadFor(header->tokens)) Die("fetched other bytes");
      std::filesystem::remove(out);
      any = true;
    }
    return any;
  }

  void RemoveSomething(uint64_t chance) {
    const auto list = store_->List();
    if (!list) Die(list.error().ToString());
    if (list->empty()) return;
    const auto removed = store_->Remove((*list)[chance % list->size()].id);
    if (!removed && removed.error().code != ErrorCode::kNotFound && removed.error().code != ErrorCode::kBusy) {
      Die(removed.error().ToString());
    }
  }
  void Tick() { store_->Tick(); }

 private:
  Path Name(const char* kind) {
    return slots_ / (std::string(kind) + std::to_string(getpid()) + "-" + std::to_string(++names_));
  }
  const Path slots_;
  SystemClock clock_;
  SystemRng rng_;
  uint64_t names_ = 0;
  std::unique_ptr<DirectoryStore> store_;
};

bool InputClosed() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  char byte;
  return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

int Run(const std::string& verb, const Path& root, const Path& slots, uint64_t seed, uint64_t count) {
  PosixFileSystem posix;
  const char* exit_at = std::getenv("MOONPOOL_TEST_EXIT_AT");
  const uint64_t last_call = exit_at != nullptr ? std::strtoull(exit_at, nullptr, 10) : 0;
  uint64_t calls = 0;
  testing::HookedFileSystem files(posix, [&](std::string_view, const Path&) {
    if (++calls == last_call) _exit(fault::kExitStatus);
  });
  constexpr uint64_t kQuotaBytes = 400'000;
  if (verb == "publish") {
    {
      Worker worker(files, root, slots, uint64_t{1} << 30);
      for (uint64_t i = 1; i <= count; ++i) worker.Publish(Conversation(seed, 12 * i));
    }
    std::printf("%llu\n", static_cast<unsigned long long>(calls));
    return 0;
  }
  Worker worker(files, root, slots, kQuotaBytes);
  std::mt19937_64 random(seed);
  if (verb == "churn") {
    for (uint64_t i = 0; count == 0 || i < count; ++i) {
      const auto tokens = Conversation(random() % 6, 8 + random() % 300);
      switch (random() % 8) {
        case 0: worker.RemoveSomething(random()); break;
        case 1: worker.Tick(); break;
        case 2:
        case 3: worker.Check(tokens); break;
        default: worker.Publish(tokens);
      }
      if (count == 0) std::printf("\n"), std::fflush(stdout);  // one more done
    }
    return 0;
  }
  if (verb == "contend") {
    for (uint64_t i = 0; i < count; ++i) {
      // The same key, and every third time one that differs in the last block.
      auto tokens = Conversation(i / 50, 40);
      if (i % 3 == 2) tokens.back() = static_cast<TokenId>(i % 7);
      worker.Publish(tokens);
    }
    return 0;
  }
  if (verb == "read") {
    uint64_t whole = 0;
    std::printf("ready\n");
    std::fflush(stdout);
    while (!InputClosed()) {
      for (uint64_t i = 0; i < count; ++i) whole += worker.Check(Conversation(seed + i, 300)) ? 1 : 0;
    }
    std::printf("%llu\n", static_cast<unsigned long long>(whole));
    return 0;
  }
  Die("unknown verb " + verb);
}

}  // namespace
}  // namespace moonpool::bus

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: store_writer VERB ROOT SLOTS SEED COUNT\n");
    return 2;
  }
  moonpool::log::Configure(moonpool::log::Level::kError, moonpool::log::Format::kText);
  return moonpool::bus::Run(argv[1], argv[2], argv[3], std::strtoull(argv[4], nullptr, 10),
                            std::strtoull(argv[5], nullptr, 10));
}
